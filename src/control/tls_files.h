/*
 * PEM files of TLS, for server and client: what is wrong with one that OpenSSL does not take, and
 * what to do about it. OpenSSL itself says "system lib" for a file that is not there.
 */
#ifndef CONTROL_TLS_FILES_H
#define CONTROL_TLS_FILES_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>

#define TLS_TEXT 512u

enum tls_file { TLS_CERTIFICATE, TLS_KEY, TLS_AUTHORITY };

/* Writes "PATH: why: what to do" for a file that was not taken, and clears OpenSSL's errors. False:
 * the file cannot be read at all. */
bool tls_file_explain(enum tls_file kind, const char *path, char text[TLS_TEXT]);

/* Whether the certificate is valid now. False: writes "PATH: why: what to do". */
bool tls_certificate_is_current(const SSL_CTX *context, const char *path, char text[TLS_TEXT]);

/* What to do about a certificate of a server with this verdict of OpenSSL's. */
const char *tls_verdict_advice(long verdict);

#endif
