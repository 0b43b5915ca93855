/* The status texts and the message chain. */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "harness/test.h"

static void test_texts(void)
{
	for (int code = RMR_OK; code >= RMR_SYSTEM; code--) {
		const char *text = rmr_status_text((enum rmr_status)code);

		CHECK(text != NULL && strchr(text, ':') != NULL);
		CHECK(strncmp(text, "unknown", 7) != 0);
	}
	CHECK_STR(rmr_status_text(RMR_TIMEOUT), "timeout: the deadline passed first");
	CHECK_STR(rmr_status_text((enum rmr_status)(RMR_SYSTEM - 1)), "unknown: not a status code");
	CHECK_STR(rmr_status_text((enum rmr_status)1), "unknown: not a status code");
	CHECK_STR(rmr_status_text((enum rmr_status) - 1000000), "unknown: not a status code");
}

static void test_chain(void)
{
	CHECK_STR(rmr_error_message(), "");
	CHECK_EQ(error_set(RMR_TOO_LONG, "%d bytes, the limit is %d", 9000, 4096), RMR_TOO_LONG);
	CHECK_STR(rmr_error_message(), "too-long: 9000 bytes, the limit is 4096");
	CHECK_EQ(error_context(RMR_TOO_LONG, "post on %s", "shm:cache"), RMR_TOO_LONG);
	CHECK_EQ(error_context(RMR_INVALID, "put"), RMR_INVALID);
	CHECK_STR(rmr_error_message(),
		  "invalid: put: post on shm:cache: 9000 bytes, the limit is 4096");
	CHECK_STR(error_chain(), "put: post on shm:cache: 9000 bytes, the limit is 4096");
	CHECK_EQ(error_status(), RMR_INVALID);

	CHECK_EQ(error_set(RMR_LIMIT, "new"), RMR_LIMIT);
	CHECK_STR(rmr_error_message(), "limit: new");
	CHECK_EQ(error_context(RMR_OK, "all is well"), RMR_OK);
	CHECK_STR(rmr_error_message(), "limit: new");

	error_clear();
	CHECK_STR(rmr_error_message(), "");
	CHECK_EQ(error_status(), RMR_OK);
	CHECK_EQ(error_context(RMR_TIMEOUT, "alone"), RMR_TIMEOUT);
	CHECK_STR(rmr_error_message(), "timeout: alone");
}

static void test_errno(void)
{
	errno = EAGAIN;
	CHECK_EQ(error_errno(RMR_SYSTEM, ENOENT, "open %s", "/nowhere"), RMR_SYSTEM);
	CHECK_STR(rmr_error_message(), "system: open /nowhere: No such file or directory");
	CHECK_EQ(errno, EAGAIN);
}

/* The arguments of a message may be the old message itself. */
static void test_quotes_itself(void)
{
	CHECK_EQ(error_set(RMR_SYSTEM, "inner"), RMR_SYSTEM);
	CHECK_EQ(error_set(RMR_REFUSED, "outer (%s)", rmr_error_message()), RMR_REFUSED);
	CHECK_EQ(error_set(RMR_REFUSED, "more (%s)", error_chain()), RMR_REFUSED);
	CHECK_STR(rmr_error_message(), "refused: more (outer (system: inner))");
}

static void test_truncation(void)
{
	char text[3 * ERROR_CHAIN_SIZE];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	CHECK_EQ(error_set(RMR_INVALID, "%s", text), RMR_INVALID);
	CHECK_EQ(strlen(error_chain()), ERROR_CHAIN_SIZE - 1);
	CHECK_STR(error_chain() + ERROR_CHAIN_SIZE - 5, "x...");

	/* Context stays readable, the far end is cut. */
	CHECK_EQ(error_context(RMR_INVALID, "while testing"), RMR_INVALID);
	CHECK_EQ(strncmp(error_chain(), "while testing: xxx", 18), 0);
	CHECK_STR(error_chain() + ERROR_CHAIN_SIZE - 5, "x...");

	CHECK_EQ(error_errno(RMR_INVALID, EPERM, "%s", text), RMR_INVALID);
	CHECK_STR(error_chain() + ERROR_CHAIN_SIZE - 5, "x...");

	/* Exactly full is not cut. */
	text[ERROR_CHAIN_SIZE - 1] = '\0';
	CHECK_EQ(error_set(RMR_INVALID, "%s", text), RMR_INVALID);
	CHECK_STR(error_chain(), text);
}

static void *other_thread(void *arg)
{
	(void)arg;
	CHECK_STR(rmr_error_message(), "");
	CHECK_EQ(error_set(RMR_LIMIT, "theirs"), RMR_LIMIT);
	return NULL;
}

static void test_threads(void)
{
	pthread_t thread;

	CHECK_EQ(error_set(RMR_DENIED, "ours"), RMR_DENIED);
	CHECK_EQ(pthread_create(&thread, NULL, other_thread, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_STR(rmr_error_message(), "denied: ours");
}

static const struct test tests[] = {
	{"texts", test_texts},		 {"chain", test_chain},
	{"errno", test_errno},		 {"quotes_itself", test_quotes_itself},
	{"truncation", test_truncation}, {"threads", test_threads},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "error_test", tests, TEST_COUNT(tests));
}
