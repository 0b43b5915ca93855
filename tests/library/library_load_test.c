/*
 * The shared libraries are loaded by dlopen(), as Python, Java and programs with plugins do it.
 *
 * Such a program may have used up the static TLS that the loader keeps for libraries loaded later;
 * then a library whose thread-local variables need static TLS cannot be loaded. So these do not
 * need any.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <remora/kv.h>
#include <remora/server.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/test.h"

#define FILLERS_MAX 512

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		TEST_FAIL("dlopen: %s", dlerror());
	return library;
}

static void *find(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		TEST_FAIL("dlsym: %s", dlerror());
	return symbol;
}

/* ISO C has no cast from void * to a function; POSIX demands that this works. */
#define FIND(library, name)                                                                        \
	({                                                                                         \
		__typeof__(&name) function;                                                        \
		void *symbol = find(library, #name);                                               \
		memcpy(&function, &symbol, sizeof(function));                                      \
		function;                                                                          \
	})

/* The loader knows libraries by their file: each copy is another one. */
static void *load_copy_of_filler(unsigned number)
{
	char path[512], command[1200];

	snprintf(path, sizeof(path), "%s/filler-%u.so", test_tmpdir(), number);
	snprintf(command, sizeof(command), "cp '%s' '%s'", FILLER_LIBRARY, path);
	CHECK_EQ(system(command), 0);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void use_up_static_tls(void)
{
	for (unsigned i = 0; i < FILLERS_MAX; i++)
		if (!load_copy_of_filler(i)) {
			CHECK_CONTAINS(dlerror(), "static TLS");
			return;
		}
	TEST_FAIL("%u libraries with static TLS could be loaded", FILLERS_MAX);
}

struct server_functions {
	void *library;
	__typeof__(&kv_server_create) create;
	__typeof__(&kv_server_start) start;
	__typeof__(&kv_server_port) port;
	__typeof__(&kv_server_destroy) destroy;
	__typeof__(&kv_server_error) error;
	kv_server_t *server;
};

static void start_server(struct server_functions *f)
{
	const kv_server_options_t options = {
		.memory = 16 << 20, .port = -1, .listen = "tcp://127.0.0.1", .workers = 1};

	f->library = load(SERVER_LIBRARY);
	f->create = FIND(f->library, kv_server_create);
	f->start = FIND(f->library, kv_server_start);
	f->port = FIND(f->library, kv_server_port);
	f->destroy = FIND(f->library, kv_server_destroy);
	f->error = FIND(f->library, kv_server_error);
	if (f->create(&options, &f->server) != KV_OK || f->start(f->server) != KV_OK)
		TEST_FAIL("%s", f->error());
}

static void stop_server(struct server_functions *f)
{
	f->destroy(f->server);
	CHECK_EQ(dlclose(f->library), 0);
}

struct client_thread {
	void *library;
	int port;
	unsigned number;
	pthread_t thread;
};

static void *put_and_get(void *argument)
{
	struct client_thread *self = argument;
	__typeof__(&kv_client_error) error = FIND(self->library, kv_client_error);
	__typeof__(&kv_client_put) put = FIND(self->library, kv_client_put);
	__typeof__(&kv_client_get) get = FIND(self->library, kv_client_get);
	kv_client_t *client = FIND(self->library, kv_client_create)(CONN_MODE_TCP);
	char value[32], back[32];

	/* An error's text is thread-local memory. */
	CHECK_EQ(put(client, "k", 1, "v", 1), KV_DISCONNECTED);
	CHECK(error(client)[0] != '\0');
	if (FIND(self->library, kv_client_connect)(client, "127.0.0.1", self->port) != KV_OK)
		TEST_FAIL("%s", error(client));
	for (unsigned i = 0; i < 200; i++) {
		size_t length = sizeof(back);

		snprintf(value, sizeof(value), "%u of %u", i, self->number);
		CHECK_EQ(put(client, &self->number, sizeof(self->number), value, sizeof(value)),
			 KV_OK);
		CHECK_EQ(get(client, &self->number, sizeof(self->number), back, &length), KV_OK);
		CHECK_EQ(length, sizeof(value));
		CHECK_STR(back, value);
	}
	FIND(self->library, kv_client_destroy)(client);
	return NULL;
}

static void use_client(int port)
{
	struct client_thread threads[4];
	void *library = load(CLIENT_LIBRARY);

	for (unsigned i = 0; i < TEST_COUNT(threads); i++) {
		threads[i] = (struct client_thread){library, port, i};
		CHECK_EQ(pthread_create(&threads[i].thread, NULL, put_and_get, &threads[i]), 0);
	}
	for (unsigned i = 0; i < TEST_COUNT(threads); i++)
		CHECK_EQ(pthread_join(threads[i].thread, NULL), 0);
	CHECK_EQ(dlclose(library), 0);
}

static void test_load_without_static_tls(void)
{
	struct server_functions server;

	use_up_static_tls();
	start_server(&server);
	use_client(server.port(server.server));
	stop_server(&server);
}

static void test_load_use_unload_repeatedly(void)
{
	for (int i = 0; i < 3; i++) {
		struct server_functions server;

		start_server(&server);
		use_client(server.port(server.server));
		use_client(server.port(server.server));
		stop_server(&server);
	}
}

static void check_flags(const char *path)
{
	struct link_map *map;
	void *library = load(path);

	CHECK_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_STATIC_TLS))
			TEST_FAIL("%s needs static TLS: look for tls_model in the sources", path);
	CHECK_EQ(dlclose(library), 0);
}

static void test_flags(void)
{
	check_flags(CLIENT_LIBRARY);
	check_flags(SERVER_LIBRARY);
}

static const struct test tests[] = {
	{"flags", test_flags},
	{"load_without_static_tls", test_load_without_static_tls},
	{"load_use_unload_repeatedly", test_load_use_unload_repeatedly},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "library_load", tests, TEST_COUNT(tests));
}
