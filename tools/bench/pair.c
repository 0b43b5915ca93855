/*
 * Options, clock, pinning and output of the yardstick programs; see pair.h.
 */
#include "pair.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void usage(const char *program, const char *const *modes)
{
	fprintf(stderr, "usage: %s ", program);
	for (int i = 0; modes[i]; i++)
		fprintf(stderr, "%s%s", i ? "|" : "", modes[i]);
	fprintf(stderr, " [--size N] [--depth N] [--seconds S] [--warmup S]"
			" [--cpus CLIENT,SERVER]\n");
	exit(2);
}

static bool is_mode(const char *text, const char *const *modes)
{
	for (int i = 0; modes[i]; i++)
		if (!strcmp(text, modes[i]))
			return true;
	return false;
}

void pair_parse(int argc, char **argv, const char *const *modes, struct pair_options *options)
{
	static const struct option table[] = {
		{"size", required_argument, NULL, 's'},	   {"depth", required_argument, NULL, 'd'},
		{"seconds", required_argument, NULL, 't'}, {"warmup", required_argument, NULL, 'w'},
		{"cpus", required_argument, NULL, 'c'},	   {NULL, 0, NULL, 0},
	};
	int letter;

	*options = (struct pair_options){.size = 8,
					 .depth = 1,
					 .seconds = 1,
					 .warmup = 0.1,
					 .client_cpu = -1,
					 .server_cpu = -1};
	while ((letter = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (letter) {
		case 's':
			options->size = strtoul(optarg, NULL, 0);
			break;
		case 'd':
			options->depth = atoi(optarg);
			break;
		case 't':
			options->seconds = atof(optarg);
			break;
		case 'w':
			options->warmup = atof(optarg);
			break;
		case 'c':
			if (sscanf(optarg, "%d,%d", &options->client_cpu, &options->server_cpu) !=
			    2)
				usage(argv[0], modes);
			break;
		default:
			usage(argv[0], modes);
		}
	}
	if (optind + 1 != argc || !is_mode(argv[optind], modes) || options->size < 1 ||
	    options->size > 1u << 30 || options->depth < 1 || options->depth > 4096 ||
	    options->seconds <= 0 || options->warmup < 0)
		usage(argv[0], modes);
	options->mode = argv[optind];
}

void pair_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		pair_die("pinning to a core");
}

uint64_t pair_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void pair_yield(unsigned turns)
{
	if (turns % PAIR_YIELD == PAIR_YIELD - 1)
		sched_yield();
}

void pair_die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

void pair_result_init(struct pair_result *result)
{
	*result = (struct pair_result){.samples = calloc(PAIR_SAMPLES, sizeof(uint32_t))};
	if (!result->samples)
		pair_die("memory for samples");
}

void pair_result_reset(struct pair_result *result)
{
	result->ops = 0;
	result->elapsed_ns = 0;
	result->sample_count = 0;
}

void pair_result_add(struct pair_result *result, uint64_t latency_ns)
{
	result->ops++;
	if (result->sample_count < PAIR_SAMPLES)
		result->samples[result->sample_count++] =
			latency_ns < UINT32_MAX ? (uint32_t)latency_ns : UINT32_MAX;
}

static int compare_samples(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static uint32_t percentile(const struct pair_result *result, double fraction)
{
	if (!result->sample_count)
		return 0;
	return result->samples[(uint32_t)(fraction * (result->sample_count - 1))];
}

void pair_result_print(struct pair_result *result, const char *provider, const char *op,
		       const struct pair_options *options)
{
	double seconds = (double)result->elapsed_ns / 1e9;
	double rate = (double)result->ops / seconds;

	qsort(result->samples, result->sample_count, sizeof(uint32_t), compare_samples);
	printf("{\"provider\": \"%s\", \"op\": \"%s\", \"size\": %zu, \"depth\": %d, "
	       "\"ops_per_s\": %.1f, \"bytes_per_s\": %.1f, \"mean_ns\": %.1f, "
	       "\"p50_ns\": %u, \"p99_ns\": %u, \"p999_ns\": %u}\n",
	       provider, op, options->size, options->depth, rate, rate * (double)options->size,
	       1e9 / rate, percentile(result, 0.5), percentile(result, 0.99),
	       percentile(result, 0.999));
	free(result->samples);
	result->samples = NULL;
}
