/*
 * Which stores there are: see store.h.
 *
 * Modules lie in lib/remora beside the directory of the program, where the build puts them, or
 * where they are installed. A module that is not there was not built, for want of a library.
 */
#include "store.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include "base/error.h"

const char *const store_names[] = {
	[STORE_KV] = "remora", [STORE_REDIS] = "redis", [STORE_MEMCACHED] = "memcached",
	[STORE_GRPC] = "grpc", [STORE_COUNT] = NULL,
};

static const char *const packages[STORE_COUNT] = {
	[STORE_REDIS] = "libhiredis-dev",
	[STORE_MEMCACHED] = "libmemcached-dev",
};

static bool find_module(const char *name, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/lib/remora/kv-bench-%s.so", spawn_home(), name);
	if (access(path, R_OK))
		snprintf(path, PATH_MAX, "%s/kv-bench-%s.so", KV_BENCH_MODULES, name);
	return !access(path, R_OK);
}

static const struct store_ops *load(enum store_kind kind)
{
	const char *name = store_names[kind];
	const struct store_ops *ops = NULL;
	char path[PATH_MAX], symbol[64];
	void *module;

	if (!find_module(name, path)) {
		error_set(RMR_UNSUPPORTED,
			  "kv-bench was built without its C library, or is the package's, which "
			  "leaves it out; apt-get install %s, then build from source",
			  packages[kind]);
		return NULL;
	}
	snprintf(symbol, sizeof(symbol), "store_%s_ops", name);
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (module)
		ops = dlsym(module, symbol);
	if (!ops)
		error_set(RMR_UNSUPPORTED, "%s; is its library installed (that of %s)?", dlerror(),
			  packages[kind]);
	return ops;
}

const struct store_ops *store_ops_of(enum store_kind kind)
{
	static const struct store_ops *loaded[STORE_COUNT];

	if (kind == STORE_KV)
		return &store_kv_ops;
	if (kind == STORE_GRPC)
		return &store_grpc_ops;
	if (!loaded[kind])
		loaded[kind] = load(kind);
	return loaded[kind];
}
