/*
 * Zipf: ranks 1 to count, rank k with a probability that goes as k to the power -skew.
 *
 * Drawn exactly, by rejection. Rank k stands for the stretch from k - 1/2 to k + 1/2 under the
 * curve x^-skew. A point under the curve is easy to draw, by inverting its integral; the curve is
 * convex, so the area over the stretch is a little more than k^-skew, and the point is drawn again
 * when it falls into what is more. Takes no memory, and a try or two.
 */
#ifndef TOOLS_COMMON_ZIPF_H
#define TOOLS_COMMON_ZIPF_H

#include "keys.h"

struct zipf {
	double skew;
	double count;
	double low, high; /* the integral's range that points are drawn from */
};

void zipf_init(struct zipf *zipf, uint64_t count, double skew);
uint64_t zipf_draw(const struct zipf *zipf, struct dice *dice);

#endif
