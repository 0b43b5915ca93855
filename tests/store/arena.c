#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CELLS 1024

uint64_t test_now_ms = 1000000;

uint64_t test_clock_ms(void)
{
	return test_now_ms;
}

void test_store_open(struct test_store *test, size_t size, enum store_on_full on_full)
{
	*test = (struct test_store){.size = size, .cells_size = CELLS * sizeof(int64_t)};
	test->fd = memfd_create("store", MFD_CLOEXEC);
	CHECK(test->fd >= 0 && ftruncate(test->fd, (off_t)size) == 0);
	test->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, test->fd, 0);
	CHECK(test->memory != MAP_FAILED);
	test->cells = mmap(NULL, test->cells_size, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(test->cells != MAP_FAILED);
	test->options = (struct store_options){.memory = test->memory,
					       .size = size,
					       .cells = test->cells,
					       .cells_size = test->cells_size,
					       .on_full = on_full};
	CHECK_OK(store_create(&test->options, &test->store));
	CHECK_OK(store_worker_open(test->store, &test->worker));
}

void test_store_close(struct test_store *test)
{
	store_worker_close(test->worker);
	store_destroy(test->store);
	munmap(test->memory, test->size);
	munmap(test->cells, test->cells_size);
	close(test->fd);
	*test = (struct test_store){0};
}

void test_store_restart(struct test_store *test)
{
	store_worker_close(test->worker);
	store_destroy(test->store);
	CHECK_OK(store_restore(&test->options, &test->store));
	CHECK_OK(store_worker_open(test->store, &test->worker));
}

void test_store_check(struct test_store *test)
{
	char why[256] = "";

	if (!store_is_valid(test->store, why, sizeof(why)))
		TEST_FAIL("the store is not valid: %s", why);
}

enum store_status put_text(struct store_worker *worker, const char *key, const char *value,
			   struct store_info *info)
{
	struct store_put put = {.key = key,
				.key_length = strlen(key),
				.value = value,
				.value_length = strlen(value)};

	return store_put(worker, &put, info);
}

enum store_status get_text(struct store_worker *worker, const char *key, char *value, size_t room,
			   struct store_info *info)
{
	struct store_info found;
	enum store_status status = store_get(worker, key, strlen(key), value, room - 1, &found);

	if (status == STORE_OK)
		value[found.value_length] = '\0';
	if (info)
		*info = found;
	return status;
}
