/* Zipf: see zipf.h. */
#include "zipf.h"

#include <math.h>

#define NEARLY_ONE 1e-9

/* The integral of x^-skew from 1 to x, and its inverse. */
static double area(double skew, double x)
{
	if (fabs(1 - skew) < NEARLY_ONE)
		return log(x);
	return (pow(x, 1 - skew) - 1) / (1 - skew);
}

static double area_inverse(double skew, double y)
{
	if (fabs(1 - skew) < NEARLY_ONE)
		return exp(y);
	return pow(1 + y * (1 - skew), 1 / (1 - skew));
}

void zipf_init(struct zipf *zipf, uint64_t count, double skew)
{
	zipf->skew = skew;
	zipf->count = (double)count;
	/* Rank 1 gets exactly its share: the height of its stretch is 1, whatever the curve does
	 * to the left of it. */
	zipf->low = area(skew, 1.5) - 1;
	zipf->high = area(skew, zipf->count + 0.5);
}

uint64_t zipf_draw(const struct zipf *zipf, struct dice *dice)
{
	for (;;) {
		double y = zipf->low + dice_real(dice) * (zipf->high - zipf->low);
		double rank = floor(area_inverse(zipf->skew, y) + 0.5);

		if (!(rank >= 1))
			rank = 1;
		if (rank > zipf->count)
			rank = zipf->count;
		/* The upper part of the stretch's area, as much as the rank's share, counts. */
		if (y >= area(zipf->skew, rank + 0.5) - pow(rank, -zipf->skew))
			return (uint64_t)rank;
	}
}
