/*
 * TLS: certificates for those who connect from elsewhere. OpenSSL does the work; here it is told
 * what is permitted: TLS 1.2 and later, HTTP/2 by ALPN and nothing else, no renegotiation, and
 * certificates of clients if there is an authority to compare them with.
 */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#include "control/server/internal.h"
#include "control/tls_files.h"

static int choose_protocol(SSL *tls, const unsigned char **out, unsigned char *out_length,
			   const unsigned char *in, unsigned in_length, void *context)
{
	(void)tls;
	(void)context;
	for (unsigned at = 0; at < in_length; at += 1u + in[at]) {
		if (in[at] == 2 && in_length - at > 2 && memcmp(in + at + 1, "h2", 2) == 0) {
			*out = in + at + 1;
			*out_length = 2;
			return SSL_TLSEXT_ERR_OK;
		}
	}
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int fail(enum tls_file kind, const char *option, const char *path)
{
	char text[TLS_TEXT];
	int status = tls_file_explain(kind, path, text) ? KV_INVALID : KV_DENIED;

	return control_fail(status, "%s: cannot use %s", option, text);
}

static int read_files(SSL_CTX *tls, const kv_control_server_options_t *options)
{
	char text[TLS_TEXT];

	ERR_clear_error();
	if (SSL_CTX_use_certificate_chain_file(tls, options->tls_cert) != 1)
		return fail(TLS_CERTIFICATE, "the TLS certificate", options->tls_cert);
	if (!tls_certificate_is_current(tls, options->tls_cert, text))
		return control_fail(KV_INVALID, "the TLS certificate: cannot use %s", text);
	if (SSL_CTX_use_PrivateKey_file(tls, options->tls_key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_check_private_key(tls) != 1)
		return fail(TLS_KEY, "the TLS key", options->tls_key);
	if (!options->tls_client_ca)
		return KV_OK;
	if (SSL_CTX_load_verify_locations(tls, options->tls_client_ca, NULL) != 1)
		return fail(TLS_AUTHORITY, "the TLS authority for clients", options->tls_client_ca);
	SSL_CTX_set_client_CA_list(tls, SSL_load_client_CA_file(options->tls_client_ca));
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return KV_OK;
}

int tls_create(const kv_control_server_options_t *options, SSL_CTX **result)
{
	SSL_CTX *tls;
	int status;

	*result = NULL;
	if (!options->tls_cert && !options->tls_key && !options->tls_client_ca)
		return KV_OK;
	if (!options->tls_cert || !options->tls_key)
		return control_fail(KV_INVALID, "TLS needs both a certificate and its key");
	tls = SSL_CTX_new(TLS_server_method());
	if (!tls)
		return control_fail(KV_NO_MEMORY, "no memory for TLS");
	SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
	SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					 SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
	/* Sessions are not resumed from memory of ours; tickets cost none. */
	SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_session_id_context(tls, (const unsigned char *)"remora", 6);
	status = read_files(tls, options);
	if (status != KV_OK)
		SSL_CTX_free(tls);
	else
		*result = tls;
	return status;
}
