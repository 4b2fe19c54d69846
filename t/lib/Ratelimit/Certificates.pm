package Ratelimit::Certificates;

# A private folder of certificates made by openssl: NAME.pem and NAME.key.

use strict;
use warnings;

use Ratelimit::Process qw(temp_folder read_file wait_until write_file);

sub new {
    my ($class) = @_;
    return bless {folder => temp_folder()}, $class;
}

sub folder { return $_[0]{folder} }

# A certificate that signs itself and others.
sub authority {
    my ($self, $name) = @_;
    return $self->_openssl(
        "req -x509 -newkey rsa:2048 -nodes -keyout $name.key -out $name.pem -days 30 -subj /CN=$name");
}

# A certificate signed by $authority for the names $alternatives ("DNS:a.test,IP:127.0.0.1"; '': none but CN=$name). With
# 0 days it has expired on return: OpenSSL 3.5 makes none that ends before it begins.
sub certificate {
    my ($self, $name, $authority, $alternatives, $days) = @_;
    $days //= 30;
    write_file("$self->{folder}/$name.ext", $alternatives ? "subjectAltName=$alternatives\n" : "\n");
    $self->_openssl("req -newkey rsa:2048 -nodes -keyout $name.key -out $name.csr -subj /CN=$name");
    $self->_openssl("x509 -req -in $name.csr -CA $authority.pem -CAkey $authority.key -CAcreateserial"
            . " -days $days -extfile $name.ext -out $name.pem");
    wait_until("$name expires", sub { system("openssl x509 -checkend 0 -noout -in $self->{folder}/$name.pem >/dev/null") != 0 })
        if $days == 0;
    chmod 0644, glob "$self->{folder}/*.key";
    return $self;
}

# Lines of redis.conf: use this certificate, and trust this authority.
sub redis_lines {
    my ($self, $name, $authority) = @_;
    my $folder = $self->{folder};
    return "tls-cert-file $folder/$name.pem\ntls-key-file $folder/$name.key\n"
        . "tls-ca-cert-file $folder/$authority.pem\n";
}

sub _openssl {
    my ($self, @words) = @_;
    my $folder = $self->{folder};
    system("cd $folder && openssl @words >>log 2>&1") == 0
        or die "openssl @words: " . read_file("$folder/log");
    return $self;
}

1;
