#include "progress.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

#define QUIET_NS 250000000u
#define FRAME_NS 100000000u
#define MOST_BAR 30

static int terminal_width(void)
{
	struct winsize window;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		return window.ws_col;
	return 80;
}

/* Three digits and a unit: 31.2MiB, 410k. */
static void format_amount(double amount, enum progress_unit unit, char *text, size_t size)
{
	static const char *const bytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	static const char *const counts[] = {"", "k", "M", "G", "T"};
	double step = unit == PROGRESS_BYTES ? 1024 : 1000;
	unsigned power = 0;

	if (unit == PROGRESS_SECONDS) {
		snprintf(text, size, "%.0fs", amount / 1e9);
		return;
	}
	/* Not 1000MiB where 0.98GiB is meant. */
	while (amount >= 999.5 && power < 4) {
		amount /= step;
		power++;
	}
	snprintf(text, size, "%.*f%s", power == 0 || amount >= 99.95 ? 0 : 1, amount,
		 (unit == PROGRESS_BYTES ? bytes : counts)[power]);
}

static void format_bar(double share, int room, char *bar)
{
	int full = (int)(share * room);

	memset(bar, ' ', (size_t)room + 2);
	bar[0] = '[';
	memset(bar + 1, '=', (size_t)full);
	if (full < room)
		bar[1 + full] = '>';
	bar[1 + room] = ']';
	bar[2 + room] = '\0';
}

void progress_format(const struct progress *progress, uint64_t done, uint64_t elapsed_ns, int width,
		     char line[PROGRESS_LINE])
{
	double share = progress->total ? (double)done / (double)progress->total : 0;
	char amount[32], rate[32], tail[96], bar[MOST_BAR + 3] = "";
	int room;

	if (width >= PROGRESS_LINE)
		width = PROGRESS_LINE - 1;
	if (share > 1)
		share = 1;
	format_amount((double)done, progress->unit, amount, sizeof(amount));
	format_amount((double)done * 1e9 / (double)(elapsed_ns + 1), progress->unit, rate,
		      sizeof(rate));
	tail[0] = '\0';
	if (progress->total)
		snprintf(tail, sizeof(tail), "%3.0f%%  ", share * 100);
	if (progress->unit == PROGRESS_SECONDS)
		snprintf(tail + strlen(tail), sizeof(tail) - strlen(tail), "%s", amount);
	else
		snprintf(tail + strlen(tail), sizeof(tail) - strlen(tail), "%s  %s/s", amount,
			 rate);
	/* What has no room is left out: the bar, then the title, then all but the share. */
	room = width - (int)strlen(progress->title) - (int)strlen(tail) - 5;
	if (progress->total && room >= 5)
		format_bar(share, room < MOST_BAR ? room : MOST_BAR, bar);
	if (room >= -3)
		snprintf(line, PROGRESS_LINE, "%s %s%s%s", progress->title, bar, bar[0] ? " " : "",
			 tail);
	else if ((int)strlen(tail) <= width)
		snprintf(line, PROGRESS_LINE, "%s", tail);
	else
		snprintf(line, (size_t)width + 1, "%3.0f%%", share * 100);
}

void progress_begin(struct progress *progress, const char *title, uint64_t total,
		    enum progress_unit unit)
{
	*progress = (struct progress){
		.title = title,
		.total = total,
		.unit = unit,
		.start_ns = clock_now_ns(),
		.next_ns = UINT64_MAX,
	};
	if (isatty(STDERR_FILENO))
		progress->next_ns = progress->start_ns + QUIET_NS;
}

void progress_show(struct progress *progress, uint64_t done)
{
	char line[PROGRESS_LINE];
	uint64_t now;

	if (progress->next_ns == UINT64_MAX)
		return;
	now = clock_now_ns();
	if (now < progress->next_ns)
		return;
	progress->next_ns = now + FRAME_NS;
	/* A terminal's last column is left alone: writing it moves some to the next line. */
	progress_format(progress, done, now - progress->start_ns, terminal_width() - 1, line);
	fprintf(stderr, "\r%s\x1b[K", line);
	fflush(stderr);
	progress->is_drawn = true;
}

void progress_end(struct progress *progress)
{
	if (progress->is_drawn) {
		fputs("\r\x1b[K", stderr);
		fflush(stderr);
	}
	progress->is_drawn = false;
	progress->next_ns = UINT64_MAX;
}
