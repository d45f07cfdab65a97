// SPDX-License-Identifier: Apache-2.0

// Package kind registers the kinds of loads, each from a folder of its own. Programs that run suites import it.
package kind

import (
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/bulk"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/change"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/dns"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/flood"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/paced"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/transact"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/wire"
)

// init registers the kinds of loads. A new kind is added to this list.
func init() {
	bench.Register(web.AB, web.Wrk, bulk.Kind, transact.CRR, transact.RR, paced.Kind, change.Kind, flood.Kind,
		wire.Kind, dns.Kind)
}
