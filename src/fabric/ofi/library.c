/*
 * libfabric, loaded when the first device of ours is opened.
 *
 * Programs that use shm or verbs should not pay for it: loading it and what it needs in turn takes
 * a fifth of a second, more than such a program's whole start. Only these few functions are symbols
 * of the library; all others are reached through the objects that they make, by inline functions of
 * its headers. It is never unloaded: its providers have threads and handlers of their own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/ofi/internal.h"

#define LIBRARY_NAME "libfabric.so.1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ofi_library library;
static bool loaded;

/* A function pointer from dlsym, which returns one to an object. */
static bool resolve(void *handle, const char *name, void *function)
{
	void *symbol = dlsym(handle, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static enum rmr_status load(void)
{
	void *handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return error_set(RMR_NO_DEVICE,
				 "libfabric cannot be loaded: %s; install libfabric1", dlerror());
	if (!resolve(handle, "fi_getinfo", &library.getinfo) ||
	    !resolve(handle, "fi_freeinfo", &library.freeinfo) ||
	    !resolve(handle, "fi_dupinfo", &library.dupinfo) ||
	    !resolve(handle, "fi_fabric", &library.fabric) ||
	    !resolve(handle, "fi_strerror", &library.strerror)) {
		dlclose(handle);
		return error_set(RMR_NO_DEVICE, "%s is not the library that it should be",
				 LIBRARY_NAME);
	}
	return RMR_OK;
}

enum rmr_status library_load(const struct ofi_library **out)
{
	enum rmr_status status = RMR_OK;

	pthread_mutex_lock(&lock);
	if (!loaded)
		status = load();
	loaded = status == RMR_OK;
	pthread_mutex_unlock(&lock);
	if (status == RMR_OK)
		*out = &library;
	return status;
}

bool library_is_there(void)
{
	bool found;

	/* Where the build saw it, usually; a look at a file instead of loading it. */
	if (access(OFI_LIBRARY_DIR "/" LIBRARY_NAME, R_OK) == 0)
		return true;
	pthread_mutex_lock(&lock);
	if (!loaded)
		loaded = load() == RMR_OK;
	found = loaded;
	pthread_mutex_unlock(&lock);
	return found;
}

const char *library_text(ssize_t code)
{
	return library.strerror(code < 0 ? (int)-code : (int)code);
}
