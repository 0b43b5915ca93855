/*
 * What is on the live screen: two looks at a server, as text or as JSON. Pure, but for where it
 * writes to.
 *
 * What matters most stands on the left and above, for a line that is too long is cut, and so is a
 * screen that is too high.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

#define CLASSES_MAX 64

static const char *const kinds[] = {"shm", "tcp", "verbs", "grpc"};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* In the order of what people look for; what is left out here belongs to one of them. */
static const struct {
	const char *figure, *name;
} operations[] = {
	{"get", "get"},
	{"put", "put"},
	{"put_pull", "put, pulled"},
	{"put_piece", "put, a piece"},
	{"delete", "delete"},
	{"add", "incr"},
	{"swap", "counter cas"},
	{"stat", "stat"},
	{"expire", "expire"},
	{"pin", "pin"},
	{"scan", "scan"},
	{"flush", "flush"},
	{"stats", "stats"},
	{"ping", "ping"},
};
#define OPERATION_COUNT (sizeof(operations) / sizeof(operations[0]))

/* ------------------------------------------------------------------------------------------
 * Numbers for people
 */

struct text {
	char of[24];
};

/* 1234 as 1234, 12345 as 12.3k; rates also as 1.5. */
static struct text rate_text(double amount)
{
	static const char *const units[] = {"", "k", "M", "G", "T"};
	unsigned power = 0;
	struct text text;

	while (amount >= 9999.5 && power < 4) {
		amount /= 1000;
		power++;
	}
	if (power == 0 && amount > 0 && amount < 9.95)
		snprintf(text.of, sizeof(text.of), "%.1f", amount);
	else
		snprintf(text.of, sizeof(text.of), "%.*f%s", power && amount < 99.95 ? 1 : 0,
			 amount, units[power]);
	return text;
}

static struct text count_text(uint64_t count)
{
	struct text text;

	if (count >= 10000)
		return rate_text((double)count);
	snprintf(text.of, sizeof(text.of), "%" PRIu64, count);
	return text;
}

static struct text bytes_text(double amount)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned power = 0;
	struct text text;

	while (amount >= 999.5 && power < 4) {
		amount /= 1024;
		power++;
	}
	snprintf(text.of, sizeof(text.of), "%.*f%s", power && amount < 99.95 ? 1 : 0, amount,
		 units[power]);
	return text;
}

static struct text time_text(uint64_t ns)
{
	struct text text;

	if (ns == 0)
		snprintf(text.of, sizeof(text.of), "-");
	else if (ns < 1000)
		snprintf(text.of, sizeof(text.of), "%" PRIu64 "ns", ns);
	else if (ns < 1000000)
		snprintf(text.of, sizeof(text.of), "%.1fus", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(text.of, sizeof(text.of), "%.1fms", (double)ns / 1e6);
	else
		snprintf(text.of, sizeof(text.of), "%.1fs", (double)ns / 1e9);
	return text;
}

static struct text age_text(uint64_t ms)
{
	uint64_t minutes = ms / 60000;
	struct text text;

	if (minutes < 1)
		snprintf(text.of, sizeof(text.of), "%" PRIu64 "s", ms / 1000);
	else if (minutes < 60)
		snprintf(text.of, sizeof(text.of), "%" PRIu64 "m %02us", minutes,
			 (unsigned)(ms / 1000 % 60));
	else if (minutes < 1440)
		snprintf(text.of, sizeof(text.of), "%" PRIu64 "h %02um", minutes / 60,
			 (unsigned)(minutes % 60));
	else
		snprintf(text.of, sizeof(text.of), "%" PRIu64 "d %02uh", minutes / 1440,
			 (unsigned)(minutes / 60 % 24));
	return text;
}

/* ------------------------------------------------------------------------------------------
 * What is worked out
 */

static double all_requests(const struct frame *frame)
{
	double sum = 0;

	for (size_t i = 0; i < OPERATION_COUNT; i++)
		sum += frame_rate(frame, "requests.%s", operations[i].figure);
	return sum;
}

/* Gets a second that clients made by reading the server's memory. They report them in batches. */
static double one_sided_gets(const struct frame *frame)
{
	return frame_rate(frame, "hits_by_clients") + frame_rate(frame, "misses_by_clients");
}

/* Of the last interval; if nothing was asked for then, of all time. Negative: never anything. */
static double hit_ratio(const struct frame *frame)
{
	double gets = frame_rate(frame, "gets");
	uint64_t all = figures_value(&frame->now, "gets");

	if (gets > 0)
		return frame_rate(frame, "hits") / gets;
	return all ? (double)figures_value(&frame->now, "hits") / (double)all : -1;
}

/* Size classes that hold something, largest share first. */
struct class
{
	char name[32];
	uint64_t items, used, wasted, free, evictions;
};

static int compare_classes(const void *a, const void *b)
{
	const struct class *left = a, *right = b;

	return left->used < right->used ? 1 : left->used > right->used ? -1 : 0;
}

static size_t list_classes(const struct frame *frame, struct class classes[CLASSES_MAX])
{
	const struct figures *figures = &frame->now;
	size_t count = 0;

	for (size_t i = 0; i < figures->count && count < CLASSES_MAX; i++) {
		const char *name = figures->all[i].name, *dot;
		struct class *class = &classes[count];

		if (strncmp(name, "class.", 6) != 0)
			continue;
		dot = strchr(name + 6, '.');
		if (!dot || strcmp(dot, ".items") != 0)
			continue;
		snprintf(class->name, sizeof(class->name), "%.*s", (int)(dot - name - 6), name + 6);
		class->items = figures->all[i].value;
		class->used = figures_value(figures, "class.%s.used", class->name);
		class->wasted = figures_value(figures, "class.%s.wasted", class->name);
		class->free = figures_value(figures, "class.%s.free", class->name);
		class->evictions = figures_value(figures, "class.%s.evictions", class->name);
		count++;
	}
	qsort(classes, count, sizeof(classes[0]), compare_classes);
	return count;
}

/* ------------------------------------------------------------------------------------------
 * As text
 */

static void write_head(const struct frame *frame, FILE *file)
{
	const struct figures *now = &frame->now;

	fprintf(file, "kv-server %s   up %s   ping %s   workers %" PRIu64 "\n", frame->title,
		age_text(figures_value(now, "uptime_ms")).of, time_text(frame->ping_ns).of,
		figures_value(now, "workers"));
	fprintf(file, "clients %" PRIu64 " of %" PRIu64 ":", figures_value(now, "clients"),
		figures_value(now, "clients_max"));
	for (size_t i = 0; i < KIND_COUNT; i++)
		fprintf(file, "%s %s %" PRIu64, i ? "," : "", kinds[i],
			figures_value(now, "clients.%s", kinds[i]));
	fprintf(file, "\nrequests %s/s   in %s/s   out %s/s\n", rate_text(all_requests(frame)).of,
		bytes_text(frame_rate(frame, "bytes_in")).of,
		bytes_text(frame_rate(frame, "bytes_out") + frame_rate(frame, "pushed_bytes")).of);
}

static void write_operations(const struct frame *frame, FILE *file)
{
	fprintf(file, "\n%-13s%8s%8s%8s%8s", "OPERATION", "/s", "p50", "p99", "p99.9");
	for (size_t i = 0; i < KIND_COUNT; i++)
		fprintf(file, "%6s/s", kinds[i]);
	fputc('\n', file);
	for (size_t i = 0; i < OPERATION_COUNT; i++) {
		const char *name = operations[i].figure;

		/* Of the common ones also that there were none. */
		if (i > 1 && !figures_value(&frame->now, "requests.%s", name))
			continue;
		fprintf(file, "%-13s%8s", operations[i].name,
			rate_text(frame_rate(frame, "requests.%s", name)).of);
		fprintf(file, "%8s",
			time_text(figures_value(&frame->now, "times.%s.p50_ns", name)).of);
		fprintf(file, "%8s",
			time_text(figures_value(&frame->now, "times.%s.p99_ns", name)).of);
		fprintf(file, "%8s",
			time_text(figures_value(&frame->now, "times.%s.p999_ns", name)).of);
		for (size_t kind = 0; kind < KIND_COUNT; kind++)
			fprintf(file, "%8s",
				rate_text(frame_rate(frame, "requests.%s.%s", name, kinds[kind]))
					.of);
		fputc('\n', file);
	}
	fputs("times: in the server, of the last five to ten seconds\n", file);
}

static void write_ways(const struct frame *frame, FILE *file)
{
	double ratio = hit_ratio(frame);
	char share[16] = "-";

	if (ratio >= 0)
		snprintf(share, sizeof(share), "%.1f%%", ratio * 100);
	fprintf(file, "\nhit ratio %s   pushed %s/s   landed %s/s   expired %s/s   evicted %s/s\n",
		share, rate_text(frame_rate(frame, "pushes")).of,
		rate_text(frame_rate(frame, "landed")).of,
		rate_text(frame_rate(frame, "expired")).of,
		rate_text(frame_rate(frame, "evicted")).of);
	fprintf(file, "one-sided gets %s/s (read from memory; clients report how many)\n",
		rate_text(one_sided_gets(frame)).of);
}

static void write_memory(const struct frame *frame, FILE *file)
{
	const struct figures *now = &frame->now;
	struct class classes[CLASSES_MAX];
	size_t count = list_classes(frame, classes);

	fprintf(file, "\nkeys %s   memory %s: items %s, lost %s, index %s, free %s\n",
		count_text(figures_value(now, "keys")).of,
		bytes_text((double)figures_value(now, "memory")).of,
		bytes_text((double)figures_value(now, "items_bytes")).of,
		bytes_text((double)figures_value(now, "items_wasted")).of,
		bytes_text((double)figures_value(now, "memory_index")).of,
		bytes_text((double)figures_value(now, "memory_free")).of);
	fprintf(file, "%-8s%10s%10s%10s%10s%11s\n", "CLASS", "items", "used", "lost", "free",
		"evicted");
	for (size_t i = 0; i < count; i++)
		fprintf(file, "%-8s%10s%10s%10s%10s%11s\n", classes[i].name,
			count_text(classes[i].items).of, bytes_text((double)classes[i].used).of,
			bytes_text((double)classes[i].wasted).of,
			bytes_text((double)classes[i].free).of,
			count_text(classes[i].evictions).of);
}

void frame_draw(const struct frame *frame, FILE *file, int width, int height, const char *end)
{
	char *text = NULL, *rest = NULL;
	size_t length;
	FILE *whole = open_memstream(&text, &length);

	if (!whole)
		return;
	write_head(frame, whole);
	write_operations(frame, whole);
	write_ways(frame, whole);
	write_memory(frame, whole);
	fclose(whole);
	rest = text;
	for (int line = 0; rest && *rest && (!height || line < height); line++) {
		size_t line_length = strcspn(rest, "\n");
		/* A terminal's last column is left alone. */
		size_t shown =
			width && line_length >= (size_t)width ? (size_t)width - 1 : line_length;

		fprintf(file, "%.*s%s", (int)shown, rest, end);
		rest += line_length + (rest[line_length] == '\n');
	}
	free(text);
}

/* ------------------------------------------------------------------------------------------
 * As JSON
 */

static void json_operations(const struct frame *frame)
{
	json_array("operations");
	for (size_t i = 0; i < OPERATION_COUNT; i++) {
		const char *name = operations[i].figure;

		json_begin();
		json_text("op", name);
		json_real("ops_per_s", frame_rate(frame, "requests.%s", name));
		for (size_t kind = 0; kind < KIND_COUNT; kind++)
			json_real(kinds[kind],
				  frame_rate(frame, "requests.%s.%s", name, kinds[kind]));
		json_number("p50_ns", figures_value(&frame->now, "times.%s.p50_ns", name));
		json_number("p99_ns", figures_value(&frame->now, "times.%s.p99_ns", name));
		json_number("p999_ns", figures_value(&frame->now, "times.%s.p999_ns", name));
		json_close();
	}
	json_array_end();
}

static void json_classes(const struct frame *frame)
{
	struct class classes[CLASSES_MAX];
	size_t count = list_classes(frame, classes);

	json_array("classes");
	for (size_t i = 0; i < count; i++) {
		json_begin();
		json_text("class", classes[i].name);
		json_number("items", classes[i].items);
		json_number("used", classes[i].used);
		json_number("wasted", classes[i].wasted);
		json_number("free", classes[i].free);
		json_number("evictions", classes[i].evictions);
		json_close();
	}
	json_array_end();
}

void frame_json(const struct frame *frame)
{
	static const char *const gauges[] = {
		"uptime_ms",   "clients",      "workers",	"keys",		"memory",
		"memory_free", "memory_index", "items_bytes",	"items_wasted", "clients_max",
		"clients.shm", "clients.tcp",  "clients.verbs", "clients.grpc"};
	double ratio = hit_ratio(frame);

	json_begin();
	json_text("server", frame->title);
	json_number("ping_ns", frame->ping_ns);
	for (size_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++)
		json_number(gauges[i], figures_value(&frame->now, "%s", gauges[i]));
	json_real("requests_per_s", all_requests(frame));
	json_real("bytes_in_per_s", frame_rate(frame, "bytes_in"));
	json_real("bytes_out_per_s",
		  frame_rate(frame, "bytes_out") + frame_rate(frame, "pushed_bytes"));
	json_real("one_sided_gets_per_s", one_sided_gets(frame));
	json_real("pushed_per_s", frame_rate(frame, "pushes"));
	json_real("landed_per_s", frame_rate(frame, "landed"));
	json_real("expired_per_s", frame_rate(frame, "expired"));
	json_real("evicted_per_s", frame_rate(frame, "evicted"));
	if (ratio >= 0)
		json_real("hit_ratio", ratio);
	else
		json_null("hit_ratio");
	json_operations(frame);
	json_classes(frame);
	json_end();
}
