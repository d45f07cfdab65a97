/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that the data plane and the control plane share. Go gets them through bpf2go; none is declared a second time.
 * The fields of pinned maps' elements and the enums in them keep their names, by which builds compare their layouts
 * (sharedmaps/layout.go). */
#pragma once

#include "types/backend.h"
#include "types/client.h"
#include "types/endpoint.h"
#include "types/flow.h"
#include "types/fragment.h"
#include "types/limits.h"
#include "types/outcome.h"
#include "types/replyhop.h"
#include "types/scheduler.h"
#include "types/service.h"
#include "types/settings.h"
