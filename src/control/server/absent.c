/*
 * The control server where the build found no nghttp2 or no protobuf-c: it says so, and what to do.
 */
#include <remora/control_server.h>

static const char missing[] =
	"this build has no gRPC: install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler "
	"protobuf-compiler, and build again";

void kv_control_server_defaults(kv_control_server_options_t *options)
{
	(void)options;
}

int kv_control_server_check(const kv_control_server_options_t *options)
{
	(void)options;
	return KV_UNSUPPORTED;
}

int kv_control_server_create(kv_server_t *server, const kv_control_server_options_t *options,
			     kv_control_server_t **control)
{
	(void)server;
	(void)options;
	*control = NULL;
	return KV_UNSUPPORTED;
}

int kv_control_server_start(kv_control_server_t *control)
{
	(void)control;
	return KV_UNSUPPORTED;
}

void kv_control_server_stop(kv_control_server_t *control)
{
	(void)control;
}

void kv_control_server_destroy(kv_control_server_t *control)
{
	(void)control;
}

const char *kv_control_server_address(const kv_control_server_t *control)
{
	(void)control;
	return "";
}

const char *kv_control_server_data_addresses(const kv_control_server_t *control)
{
	(void)control;
	return "";
}

int kv_control_server_read_certificates(kv_control_server_t *control)
{
	(void)control;
	return KV_UNSUPPORTED;
}

int kv_control_server_stats(kv_control_server_t *control, char **text)
{
	(void)control;
	(void)text;
	return KV_UNSUPPORTED;
}

const char *kv_control_server_error(void)
{
	return missing;
}
