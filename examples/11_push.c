/*
 * Calls by gRPC, values by RDMA: a megabyte is pulled from our memory, and pushed back into it.
 *	11_push [url]	http://127.0.0.1:50051, or https://HOST:PORT
 * A server for it: kv-server --listen-addr 50051
 */
#include <err.h>
#include <remora/control.h>
#include <stdio.h>
#include <string.h>

#define SIZE ((size_t)1 << 20)

int main(int argc, char **argv)
{
	const char *url = argc > 1 ? argv[1] : "http://127.0.0.1:50051";
	size_t length = SIZE;
	kv_control_t *control;
	kv_info_t info;
	char *memory;

	if (kv_control_connect(url, NULL, &control) != KV_OK)
		errx(1, "%s", kv_control_error(NULL));
	printf("values travel by %s\n", kv_control_transport(control));

	/* Memory that the server reaches: nothing is copied on this side. */
	memory = kv_control_alloc(control, SIZE);
	if (!memory)
		errx(1, "no memory that the server could reach");
	memset(memory, 'x', SIZE);
	if (kv_control_put(control, "example:push", 12, memory, SIZE) != KV_OK)
		errx(1, "put: %s", kv_control_error(control));
	printf("put by %s\n", kv_path_name(kv_control_last_path(control)));

	memset(memory, 0, SIZE);
	if (kv_control_get_with(control, "example:push", 12, memory, &length, &info) != KV_OK)
		errx(1, "get: %s", kv_control_error(control));
	printf("got %zu bytes by %s, the last is '%c'\n", length,
	       kv_path_name(kv_control_last_path(control)), memory[length - 1]);

	kv_control_delete(control, "example:push", 12);
	kv_control_close(control);
	return 0;
}
