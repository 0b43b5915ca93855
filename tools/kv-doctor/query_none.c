/* A build without verbs asks no adapter: see doctor.h. */
#include "doctor.h"

void query_ports(struct adapter *adapter)
{
	(void)adapter;
}
