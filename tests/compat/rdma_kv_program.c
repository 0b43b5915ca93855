/*
 * `application` and `client` of the RDMA Key-Value Store: without an argument a server, with the
 * name of one its client, which sets and gets and looks at no return code.
 */
#include <remora/compat/rdma_kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_VALUE (64u << 10)

static int failures;

static void check(int right, const char *what)
{
	if (!right) {
		printf("wrong: %s\n", what);
		failures++;
	}
}

static void set_and_get(void *kv_handle, const char *key, const char *value)
{
	char *found;

	kv_set(kv_handle, key, value);
	kv_get(kv_handle, key, &found);
	check(strcmp(value, found) == 0, key);
	kv_release(found);
}

static void get_nothing(void *kv_handle, const char *key)
{
	char *found;

	check(kv_get(kv_handle, key, &found) == 0, "the result of a key that is not there");
	check(strcmp("", found) == 0, "the value of a key that is not there");
	kv_release(found);
}

static int use_server(char *servername)
{
	char *value = malloc(LONG_VALUE);
	void *kv_handle;

	if (!value || kv_open(servername, &kv_handle) != 0) {
		printf("no server\n");
		free(value);
		return 1;
	}
	memset(value, 'a', LONG_VALUE - 1);
	value[LONG_VALUE - 1] = '\0';
	set_and_get(kv_handle, "eager_first_key", "First value");
	set_and_get(kv_handle, "eager_second_key", "Second value");
	set_and_get(kv_handle, "rendezvous_first_key", value);
	get_nothing(kv_handle, "not_key");
	free(value);
	check(kv_close(kv_handle) == 0, "kv_close");
	check(kv_get(NULL, "key", &value) == 1 && !value, "a get without a handle");
	return run_client(servername) || failures;
}

int main(int argc, char **argv)
{
	return argc > 1 ? use_server(argv[1]) : run_server();
}
