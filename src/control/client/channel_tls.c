/*
 * TLS for the channel: OpenSSL on a socket that does not block. HTTP/2 is agreed on by ALPN, and
 * the server's name has to be the one that was asked for, unless the caller does not care.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "control/client/internal.h"
#include "control/tls_files.h"

static const uint8_t protocols[] = {2, 'h', '2'};

/* What OpenSSL says about it. */
static const char *reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "no words";
}

static int file_fails(kv_control_t *control, enum tls_file kind, const char *path)
{
	char text[TLS_TEXT];

	(void)tls_file_explain(kind, path, text);
	return control_error(control, KV_DENIED, "TLS: %s", text);
}

static int load_files(kv_control_t *control, SSL_CTX *context)
{
	const kv_control_options_t *options = &control->options;
	char text[TLS_TEXT];

	if (options->ca_file && SSL_CTX_load_verify_locations(context, options->ca_file, NULL) != 1)
		return file_fails(control, TLS_AUTHORITY, options->ca_file);
	if (!options->ca_file)
		SSL_CTX_set_default_verify_paths(context);
	if (options->cert_file &&
	    SSL_CTX_use_certificate_chain_file(context, options->cert_file) != 1)
		return file_fails(control, TLS_CERTIFICATE, options->cert_file);
	if (options->cert_file && !tls_certificate_is_current(context, options->cert_file, text))
		return control_error(control, KV_DENIED, "TLS: %s", text);
	if (options->cert_key_file &&
	    SSL_CTX_use_PrivateKey_file(context, options->cert_key_file, SSL_FILETYPE_PEM) != 1)
		return file_fails(control, TLS_KEY, options->cert_key_file);
	return KV_OK;
}

static bool set_name(SSL *tls, const char *host)
{
	X509_VERIFY_PARAM *rules = SSL_get0_param(tls);

	if (X509_VERIFY_PARAM_set1_ip_asc(rules, host) == 1)
		return true;
	ERR_clear_error(); /* it is no number */
	return SSL_set_tlsext_host_name(tls, host) == 1 && SSL_set1_host(tls, host) == 1;
}

static int make_tls(kv_control_t *control)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL *tls = NULL;
	int status;

	if (!context)
		return control_error(control, KV_NO_MEMORY, "no memory for TLS");
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_mode(context,
			 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_verify(context, control->options.insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
			   NULL);
	status = load_files(control, context);
	if (status == KV_OK) {
		tls = SSL_new(context);
		if (!tls || SSL_set_alpn_protos(tls, protocols, sizeof(protocols)) ||
		    !set_name(tls, control->url.host) || SSL_set_fd(tls, control->channel.fd) != 1)
			status = control_error(control, KV_INTERNAL, "TLS: %s", reason());
	}
	SSL_CTX_free(context);
	if (status != KV_OK)
		SSL_free(tls);
	else
		control->channel.tls = tls;
	return status;
}

static int explain(kv_control_t *control)
{
	long verdict = SSL_get_verify_result(control->channel.tls);

	if (verdict != X509_V_OK)
		return control_error(control, KV_DENIED, "%s: its certificate: %s: %s",
				     control->url.authority, X509_verify_cert_error_string(verdict),
				     tls_verdict_advice(verdict));
	return control_error(control, KV_PROTOCOL, "%s: TLS: %s; does it speak TLS at all?",
			     control->url.authority, reason());
}

int channel_tls_begin(kv_control_t *control, uint64_t deadline_ns)
{
	struct control_channel *channel = &control->channel;
	struct pollfd ready = {.fd = channel->fd};
	const uint8_t *agreed;
	unsigned length;
	int status;

	ERR_clear_error();
	status = make_tls(control);
	if (status != KV_OK)
		return status;
	for (;;) {
		int result = SSL_connect(channel->tls);
		int wants = SSL_get_error(channel->tls, result);

		if (result == 1)
			break;
		if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE)
			return explain(control);
		ready.events = wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
		if (poll(&ready, 1, clock_remaining_ms(deadline_ns)) == 0)
			return control_error(control, KV_TIMEOUT, "%s: no TLS handshake in time",
					     control->url.authority);
	}
	SSL_get0_alpn_selected(channel->tls, &agreed, &length);
	if (length != 2 || memcmp(agreed, "h2", 2) != 0)
		return control_error(control, KV_PROTOCOL, "%s: the server has no HTTP/2",
				     control->url.authority);
	return KV_OK;
}

void channel_tls_end(kv_control_t *control)
{
	struct control_channel *channel = &control->channel;

	if (channel->tls && !channel->is_lost)
		SSL_shutdown(channel->tls);
	SSL_free(channel->tls);
	channel->tls = NULL;
	ERR_clear_error();
}

/* What a result means, as errno. A handshake in between may want the other direction; both are
 * tried again whenever the socket has something. */
static ssize_t translate(struct control_channel *channel, int result)
{
	switch (SSL_get_error(channel->tls, result)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		errno = EAGAIN;
		return -1;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_SYSCALL:
		if (!errno)
			errno = ECONNRESET;
		return -1;
	default:
		errno = EPROTO;
		return -1;
	}
}

ssize_t channel_tls_read(struct control_channel *channel, void *bytes, size_t room)
{
	int result;

	ERR_clear_error();
	errno = 0;
	result = SSL_read(channel->tls, bytes, (int)room);
	return result > 0 ? result : translate(channel, result);
}

ssize_t channel_tls_write(struct control_channel *channel, const void *bytes, size_t length)
{
	int result;

	ERR_clear_error();
	errno = 0;
	result = SSL_write(channel->tls, bytes, (int)(length < INT32_MAX ? length : INT32_MAX));
	if (result > 0)
		return result;
	if (translate(channel, result) == 0)
		errno = ECONNRESET;
	return -1;
}
