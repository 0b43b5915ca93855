/*
 * What the yardstick programs of tools/bench/ share.
 *
 * A yardstick measures what somebody else's transport does on this machine, so that fabric-perf's
 * figures have something to stand beside. Each is one program that forks: the parent is the client
 * and takes the time, the child is the target, each pinned to a core of its own. They link nothing
 * of Remora: a yardstick that bends with what it measures is none.
 */
#ifndef REMORA_BENCH_PAIR_H
#define REMORA_BENCH_PAIR_H

#include <stddef.h>
#include <stdint.h>

struct pair_options {
	const char *mode; /* the first argument */
	size_t size;	  /* bytes an operation */
	int depth;	  /* operations in flight */
	double seconds;
	double warmup;
	int client_cpu; /* -1: not pinned */
	int server_cpu;
};

/* Parses MODE [--size N] [--depth N] [--seconds S] [--warmup S] [--cpus CLIENT,SERVER]. The mode
 * must be in the NULL-terminated list. Ends the program with exit 2 on anything wrong. */
void pair_parse(int argc, char **argv, const char *const *modes, struct pair_options *options);

/* Pins the calling process; -1 does nothing. */
void pair_pin(int cpu);

uint64_t pair_now_ns(void);

/* Call it in spin loops with the number of turns in vain: once in PAIR_YIELD of them others may use
 * the core. fabric-perf does the same, so a machine that is not idle treats all alike. */
#define PAIR_YIELD 1024
void pair_yield(unsigned turns);

/* Ends the program with exit 1, and a message with the text of errno. */
void pair_die(const char *what) __attribute__((noreturn));

/* Latency samples of one run: the first PAIR_SAMPLES are kept for percentiles. */
#define PAIR_SAMPLES (1u << 20)

struct pair_result {
	uint64_t ops;
	uint64_t elapsed_ns;
	uint32_t *samples; /* ns */
	uint32_t sample_count;
};

void pair_result_init(struct pair_result *result);
void pair_result_reset(struct pair_result *result);
void pair_result_add(struct pair_result *result, uint64_t latency_ns);

/* Prints one JSON object, with the keys that `fabric-perf --json` uses, and frees the samples. */
void pair_result_print(struct pair_result *result, const char *provider, const char *op,
		       const struct pair_options *options);

#endif
