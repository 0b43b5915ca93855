/*
 * The greeter by itself, with two toy languages: callers of either reach the right listener, alone
 * and when both share a socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/greeter.h"
#include "harness/test.h"

#define ALPHA_SIZE 12
#define BETA_SIZE  40

/* "Aaaaaaaa...": the fourth byte of an introduction is the first that differs from Beta's. */
static enum greeter_verdict judge(const uint8_t *bytes, size_t have, char letter, size_t size,
				  const char **reason)
{
	static const char magic[] = "Rmr";

	*reason = "not our language";
	if (memcmp(bytes, magic, have < 3 ? have : 3) != 0)
		return GREETER_BAD;
	for (size_t i = 3; i < have; i++) {
		if (bytes[i] != (uint8_t)letter)
			return GREETER_BAD;
	}
	return have == size ? GREETER_DONE : GREETER_MORE;
}

static enum greeter_verdict judge_alpha(const uint8_t *bytes, size_t have, const char **reason)
{
	return judge(bytes, have, 'a', ALPHA_SIZE, reason);
}

static enum greeter_verdict judge_beta(const uint8_t *bytes, size_t have, const char **reason)
{
	return judge(bytes, have, 'b', BETA_SIZE, reason);
}

static size_t refuse(uint8_t *to, const char *reason)
{
	memcpy(to, "no", 2);
	(void)reason;
	return 2;
}

static const struct greeter_language alpha = {
	.name = "alpha", .hello_size = ALPHA_SIZE, .judge = judge_alpha, .refuse = refuse};
static const struct greeter_language beta = {
	.name = "beta", .hello_size = BETA_SIZE, .judge = judge_beta, .refuse = refuse};

struct post {
	struct rmr_listener listener;
	struct greeter greeter;
};

static enum rmr_status open_post(struct post *post, const struct greeter_language *language,
				 struct post *beside)
{
	*post = (struct post){
		.listener = {.options = {.backlog = 8,
					 .handshake_timeout_ms = 300,
					 .beside = beside ? &beside->listener : NULL}}};
	return greeter_init(&post->greeter, &post->listener, language, "127.0.0.1:0");
}

static int call(const struct post *post)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)atoi(strrchr(post->listener.address, ':') + 1));
	CHECK(fd >= 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* An introduction, in parts of so many bytes. */
static void introduce(int fd, char letter, size_t size, size_t part)
{
	char hello[BETA_SIZE] = "Rmr";

	memset(hello + 3, letter, size - 3);
	for (size_t at = 0; at < size; at += part) {
		size_t length = size - at < part ? size - at : part;

		CHECK_EQ(send(fd, hello + at, length, MSG_NOSIGNAL), (ssize_t)length);
		if (part < size)
			test_sleep_ms(1);
	}
}

/* Turns both until one of them has a caller, which is closed; NULL: nobody came in that time. */
static struct post *await_caller(struct post *posts[2], int most_ms)
{
	uint64_t deadline_ns = clock_deadline_ns(most_ms * (int)TEST_TIME_FACTOR);

	while (!clock_passed(deadline_ns)) {
		for (int i = 0; i < 2; i++) {
			struct greeter_caller caller;
			int wait_ms;

			if (posts[i] &&
			    greeter_next(&posts[i]->greeter, &caller, &wait_ms) == RMR_OK) {
				close(caller.fd);
				CHECK(caller.peer[0]);
				CHECK_MEM(caller.hello, "Rmr", 3);
				return posts[i];
			}
		}
		test_sleep_ms(1);
	}
	return NULL;
}

static void test_alone(void)
{
	struct post host;
	struct post *posts[2] = {&host, NULL};
	int fd;

	CHECK_OK(open_post(&host, &alpha, NULL));
	fd = call(&host);
	introduce(fd, 'a', ALPHA_SIZE, ALPHA_SIZE);
	CHECK(await_caller(posts, 5000) == &host);
	close(fd);
	fd = call(&host);
	introduce(fd, 'b', BETA_SIZE, BETA_SIZE);
	CHECK(await_caller(posts, 100) == NULL);
	close(fd);
	greeter_fini(&host.greeter);
}

/* Whole, in halves, byte by byte: every caller reaches his own. */
static void test_two_share_a_socket(void)
{
	static const size_t parts[] = {100, 7, 4, 3, 1};
	struct post host, guest;
	struct post *posts[2] = {&host, &guest};

	CHECK_OK(open_post(&host, &alpha, NULL));
	CHECK_OK(open_post(&guest, &beta, &host));
	CHECK_STR(strrchr(guest.listener.address, ':'), strrchr(host.listener.address, ':'));
	for (int round = 0; round < 20; round++) {
		bool is_beta = round % 3 == 0;
		int fd = call(&host);

		introduce(fd, is_beta ? 'b' : 'a', is_beta ? BETA_SIZE : ALPHA_SIZE,
			  parts[round % 5]);
		CHECK(await_caller(posts, 5000) == (is_beta ? &guest : &host));
		close(fd);
	}
	greeter_fini(&guest.greeter);
	greeter_fini(&host.greeter);
}

/* Nonsense, silence after a few bytes, and hanging up: dropped by whoever has them. */
static void test_bad_callers(void)
{
	struct post host, guest;
	struct post *posts[2] = {&host, &guest};
	char byte;

	CHECK_OK(open_post(&host, &alpha, NULL));
	CHECK_OK(open_post(&guest, &beta, &host));
	for (int i = 0; i < 4; i++) {
		int fd = call(&host);

		if (i == 0)
			introduce(fd, 'c', BETA_SIZE, BETA_SIZE);
		else if (i < 3)
			introduce(fd, i == 1 ? 'a' : 'b', 9, 9);
		else
			CHECK_EQ(send(fd, "x", 1, MSG_NOSIGNAL), 1);
		CHECK(await_caller(posts, 600) == NULL);
		CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
		close(fd);
	}
	CHECK_EQ(host.greeter.pending_count, 0);
	CHECK_EQ(guest.greeter.pending_count, 0);
	greeter_fini(&guest.greeter);
	greeter_fini(&host.greeter);
}

static void test_who_may_share(void)
{
	struct post host, guest, other;
	struct post *posts[2] = {&host, NULL};
	int fd;

	CHECK_OK(open_post(&host, &alpha, NULL));
	CHECK_EQ(open_post(&other, &alpha, &host), RMR_INVALID);
	CHECK_OK(open_post(&guest, &beta, &host));
	CHECK_EQ(open_post(&other, &beta, &host), RMR_ADDRESS_IN_USE);
	CHECK_EQ(open_post(&other, &alpha, &guest), RMR_INVALID);
	/* When the guest is gone its callers are strangers, and another can come. */
	greeter_fini(&guest.greeter);
	fd = call(&host);
	introduce(fd, 'b', BETA_SIZE, BETA_SIZE);
	CHECK(await_caller(posts, 100) == NULL);
	close(fd);
	CHECK_OK(open_post(&other, &beta, &host));
	greeter_fini(&other.greeter);
	greeter_fini(&host.greeter);
}

/* ------------------------------------------------------------------------------------------
 * Threads: each listener has its own, and callers of both come all the time.
 */

#define CALLERS 200

struct turner {
	struct post *post;
	atomic_bool *stop;
	int taken;
};

static void *turn(void *context)
{
	struct turner *turner = context;

	while (!atomic_load(turner->stop)) {
		struct greeter_caller caller;
		int wait_ms;

		if (greeter_next(&turner->post->greeter, &caller, &wait_ms) == RMR_OK) {
			close(caller.fd);
			turner->taken++;
		}
	}
	return NULL;
}

static void test_threads(void)
{
	struct post host, guest;
	atomic_bool stop = false;
	struct turner turners[2] = {{&host, &stop, 0}, {&guest, &stop, 0}};
	pthread_t threads[2];

	CHECK_OK(open_post(&host, &alpha, NULL));
	CHECK_OK(open_post(&guest, &beta, &host));
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, turn, &turners[i]), 0);
	for (int i = 0; i < CALLERS; i++) {
		int fd = call(&host);
		char byte;

		introduce(fd, i % 2 ? 'b' : 'a', i % 2 ? BETA_SIZE : ALPHA_SIZE, BETA_SIZE);
		/* It is closed when it has been taken. */
		CHECK_EQ(recv(fd, &byte, 1, 0), 0);
		close(fd);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(turners[0].taken, CALLERS / 2);
	CHECK_EQ(turners[1].taken, CALLERS / 2);
	greeter_fini(&guest.greeter);
	greeter_fini(&host.greeter);
}

static const struct test tests[] = {
	{"alone", test_alone},
	{"two_share_a_socket", test_two_share_a_socket},
	{"bad_callers", test_bad_callers},
	{"who_may_share", test_who_may_share},
	{"threads", test_threads},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "greeter_test", tests, TEST_COUNT(tests));
}
