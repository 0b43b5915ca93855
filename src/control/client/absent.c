/*
 * The gRPC client where the build found no nghttp2 or no protobuf-c: it says so, and what to do.
 * None of the functions but the first and the error's is ever called, for there is no client.
 */
#include <remora/control.h>

static const char missing[] =
	"this build has no gRPC: install libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler "
	"protobuf-compiler, and build again";

int kv_control_connect(const char *url, const kv_control_options_t *options, kv_control_t **control)
{
	(void)url;
	(void)options;
	(void)control;
	return KV_UNSUPPORTED;
}

void kv_control_close(kv_control_t *control)
{
	(void)control;
}

const char *kv_control_error(const kv_control_t *control)
{
	(void)control;
	return missing;
}

const char *kv_control_transport(const kv_control_t *control)
{
	(void)control;
	return "";
}

void *kv_control_alloc(kv_control_t *control, size_t size)
{
	(void)control;
	(void)size;
	return NULL;
}

void kv_control_free(kv_control_t *control, void *memory)
{
	(void)control;
	(void)memory;
}

int kv_control_get(kv_control_t *control, const void *key, size_t key_length, void *value,
		   size_t *length)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)value;
	(void)length;
	return KV_UNSUPPORTED;
}

int kv_control_get_with(kv_control_t *control, const void *key, size_t key_length, void *value,
			size_t *length, kv_info_t *info)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)value;
	(void)length;
	(void)info;
	return KV_UNSUPPORTED;
}

int kv_control_get_alloc(kv_control_t *control, const void *key, size_t key_length, void **value,
			 size_t *length, kv_info_t *info)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)value;
	(void)length;
	(void)info;
	return KV_UNSUPPORTED;
}

int kv_control_stat(kv_control_t *control, const void *key, size_t key_length, kv_info_t *info)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)info;
	return KV_UNSUPPORTED;
}

int kv_control_put(kv_control_t *control, const void *key, size_t key_length, const void *value,
		   size_t value_length)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)value;
	(void)value_length;
	return KV_UNSUPPORTED;
}

int kv_control_put_with(kv_control_t *control, const void *key, size_t key_length,
			const void *value, size_t value_length, const kv_put_options_t *options,
			kv_info_t *info)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)value;
	(void)value_length;
	(void)options;
	(void)info;
	return KV_UNSUPPORTED;
}

int kv_control_cas(kv_control_t *control, const void *key, size_t key_length, uint64_t expected,
		   const void *value, size_t value_length, uint64_t *version)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)expected;
	(void)value;
	(void)value_length;
	(void)version;
	return KV_UNSUPPORTED;
}

int kv_control_delete(kv_control_t *control, const void *key, size_t key_length)
{
	(void)control;
	(void)key;
	(void)key_length;
	return KV_UNSUPPORTED;
}

int kv_control_delete_version(kv_control_t *control, const void *key, size_t key_length,
			      uint64_t version)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)version;
	return KV_UNSUPPORTED;
}

int kv_control_touch(kv_control_t *control, const void *key, size_t key_length, uint64_t ttl_ms)
{
	(void)control;
	(void)key;
	(void)key_length;
	(void)ttl_ms;
	return KV_UNSUPPORTED;
}

int kv_control_scan(kv_control_t *control, const void *prefix, size_t prefix_length,
		    uint64_t *cursor, size_t count, kv_scan_fn fn, void *context)
{
	(void)control;
	(void)prefix;
	(void)prefix_length;
	(void)cursor;
	(void)count;
	(void)fn;
	(void)context;
	return KV_UNSUPPORTED;
}

int kv_control_stats(kv_control_t *control, char **text)
{
	(void)control;
	(void)text;
	return KV_UNSUPPORTED;
}

int kv_control_ping(kv_control_t *control, uint64_t *round_trip_ns)
{
	(void)control;
	(void)round_trip_ns;
	return KV_UNSUPPORTED;
}

int kv_control_heartbeat(kv_control_t *control)
{
	(void)control;
	return KV_UNSUPPORTED;
}

kv_path_t kv_control_last_path(const kv_control_t *control)
{
	(void)control;
	return KV_PATH_NONE;
}
