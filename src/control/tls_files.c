/* What is wrong with PEM files: see tls_files.h. */
#include "control/tls_files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATE_TEXT 64u

static const char *const kind_names[] = {
	[TLS_CERTIFICATE] = "certificate",
	[TLS_KEY] = "private key",
	[TLS_AUTHORITY] = "certificate of an authority",
};

/* 0, or why the file cannot be read as an errno. */
static int try_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error = errno;
	struct stat about;

	if (fd < 0)
		return error;
	error = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode) ? EISDIR : 0;
	close(fd);
	return error;
}

static const char *advice_of(int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
		return "check the name";
	case EACCES:
		return "let the user of this program read it";
	case EISDIR:
		return "name the file in it";
	default:
		return "try to read it by hand";
	}
}

bool tls_file_explain(enum tls_file kind, const char *path, char text[TLS_TEXT])
{
	unsigned long code = ERR_peek_last_error();
	int error = try_open(path);

	if (error)
		snprintf(text, TLS_TEXT, "%s: %s: %s", path, strerror(error), advice_of(error));
	else if (ERR_GET_REASON(code) == X509_R_KEY_VALUES_MISMATCH &&
		 ERR_GET_LIB(code) == ERR_LIB_X509)
		snprintf(text, TLS_TEXT,
			 "%s: it is not the key of the certificate: give the key that the "
			 "certificate was made with",
			 path);
	else if (ERR_GET_REASON(code) == PEM_R_BAD_PASSWORD_READ ||
		 ERR_GET_REASON(code) == PEM_R_BAD_DECRYPT)
		snprintf(text, TLS_TEXT,
			 "%s: it is protected by a password: take it off with 'openssl pkey'",
			 path);
	else
		snprintf(text, TLS_TEXT, "%s: it holds no %s as PEM: %s", path, kind_names[kind],
			 "a PEM file begins with '-----BEGIN'");
	ERR_clear_error();
	return !error;
}

static void write_date(const ASN1_TIME *date, char text[DATE_TEXT])
{
	BIO *bio = BIO_new(BIO_s_mem());
	int length = 0;

	if (bio && ASN1_TIME_print(bio, date) == 1)
		length = BIO_read(bio, text, DATE_TEXT - 1);
	text[length > 0 ? length : 0] = '\0';
	BIO_free(bio);
}

bool tls_certificate_is_current(const SSL_CTX *context, const char *path, char text[TLS_TEXT])
{
	const X509 *certificate = SSL_CTX_get0_certificate(context);
	const ASN1_TIME *from, *to;
	char date[DATE_TEXT];

	if (!certificate)
		return true;
	from = X509_get0_notBefore(certificate);
	to = X509_get0_notAfter(certificate);
	if (X509_cmp_current_time(to) < 0) {
		write_date(to, date);
		snprintf(text, TLS_TEXT, "%s: the certificate has expired at %s: renew it", path,
			 date);
		return false;
	}
	if (X509_cmp_current_time(from) > 0) {
		write_date(from, date);
		snprintf(text, TLS_TEXT,
			 "%s: the certificate is valid from %s on: check the clock of this host",
			 path, date);
		return false;
	}
	return true;
}

const char *tls_verdict_advice(long verdict)
{
	switch (verdict) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return "the server's certificate has to be renewed";
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return "check the clocks of both hosts";
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return "connect by a name that stands in the certificate";
	default:
		return "name the authority that signed it by ca_file";
	}
}
