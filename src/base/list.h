#pragma once

namespace ratelimit {

template <class T>
class List;

/// An element of a List. The destructor removes it from its list.
template <class T>
class Link {
public:
    Link() noexcept : next_(this), previous_(this) {}
    ~Link() { unlink(); }
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    /// Whether it is in a list.
    bool linked() const noexcept { return next_ != this; }
    /// Removes it from its list, if it is in one.
    void unlink() noexcept
    {
        next_->previous_ = previous_;
        previous_->next_ = next_;
        next_ = previous_ = this;
    }

private:
    friend class List<T>;

    Link* next_;
    Link* previous_;
};

/// A queue of elements that derive from Link<T>, each in one list at most. It does not own them.
template <class T>
class List {
public:
    bool empty() const noexcept { return ends_.next_ == &ends_; }
    T& front() const noexcept { return *static_cast<T*>(ends_.next_); }
    T& back() const noexcept { return *static_cast<T*>(ends_.previous_); }

    void push_back(T& element) noexcept
    {
        Link<T>& link = element;
        link.unlink();
        link.next_ = &ends_;
        link.previous_ = ends_.previous_;
        ends_.previous_->next_ = &link;
        ends_.previous_ = &link;
    }
    T& pop_front() noexcept
    {
        T& element = front();
        static_cast<Link<T>&>(element).unlink();
        return element;
    }
    void take_all(List& other) noexcept
    {
        while (!other.empty()) {
            push_back(other.front());
        }
    }
    /// The first element for which `match` is true. Null: none.
    template <class Match>
    T* find(const Match& match) const
    {
        for (Link<T>* link = ends_.next_; link != &ends_; link = link->next_) {
            if (match(*static_cast<T*>(link))) {
                return static_cast<T*>(link);
            }
        }
        return nullptr;
    }
    template <class Visit>
    void each(Visit&& visit) const
    {
        for (Link<T>* link = ends_.next_; link != &ends_;) {
            Link<T>* const next = link->next_;  // `visit` may unlink the element
            visit(*static_cast<T*>(link));
            link = next;
        }
    }

private:
    mutable Link<T> ends_;
};

}  // namespace ratelimit
