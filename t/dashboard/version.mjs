// The program's version, which the mock's nodes and the pictures of the documents have.

import { readFileSync } from 'node:fs';

export const VERSION = readFileSync(new URL('../../src/base/version.h', import.meta.url), 'utf8').match(/\bversion = "([\d.]+)"/)[1];
