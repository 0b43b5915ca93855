/*
 * The drivers of RDMA adapters that Linux has.
 *
 * A card is driven by one module as a network card and by another as an adapter; the second one is
 * what people forget to load. And beside the kernel's there is a part of every driver in a library
 * of user space. Debian has all of those in one package, ibverbs-providers.
 */
#include <string.h>

#include "doctor.h"

#define IWARP "iWARP adapters have no WRITE with an immediate; use tcp"
#define EFA   "EFA has no reliable connections by verbs; use ofi:efa, by libfabric"

const struct driver drivers[] = {
	{"mlx5_ib", "mlx5_core", "mlx5", NULL, 0x15b3, 0x1011, 0xffff},
	{"mlx4_ib", "mlx4_core", "mlx4", NULL, 0x15b3, 0x1002, 0x1010},
	{"bnxt_re", "bnxt_en", "bnxt_re", NULL, 0, 0, 0},
	{"irdma", "ice", "irdma", NULL, 0, 0, 0},
	{"efa", "efa", "efa", EFA, 0x1d0f, 0xefa0, 0xefaf},
	{"qedr", "qede", "qedr", NULL, 0, 0, 0},
	{"hns_roce_hw_v2", "hns3", "hns", NULL, 0, 0, 0},
	{"mana_ib", "mana", "mana", NULL, 0, 0, 0},
	{"erdma", "erdma", "erdma", IWARP, 0x1ded, 0x107f, 0x107f},
	{"iw_cxgb4", "cxgb4", "cxgb4", IWARP, 0, 0, 0},
	{"rdma_rxe", "", "rxe", NULL, 0, 0, 0},
	{"siw", "", "siw", IWARP, 0, 0, 0},
	{NULL},
};

const struct driver *driver_find(const char *module)
{
	for (const struct driver *driver = drivers; driver->module; driver++)
		if (strcmp(driver->module, module) == 0)
			return driver;
	return NULL;
}

const struct driver *driver_of_network(const char *network)
{
	for (const struct driver *driver = drivers; driver->module && *network; driver++)
		if (strcmp(driver->network, network) == 0)
			return driver;
	return NULL;
}
