// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/jeoul/jeoul/internal/weigh/report/kind/bulk"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/change"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/distribution"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/dns"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/flood"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/instructions"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/memory"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/paced"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/packets"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/scale"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/transact"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/tuned"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/wire"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// kinds are all kinds of loads; the first kind that recognizes a load reports it. Kinds about the hosts' settings, or
// about counts, go before kinds about packets that were sent. A new kind is a line here.
var kinds = []model.Registration{
	tuned.Kind, flood.Kind, wire.Kind, packets.Counted, instructions.Kind, dns.Kind, change.Kind,
	memory.Kind, distribution.Kind, scale.Kind, packets.Kind, paced.Kind, transact.Kind, bulk.Kind, web.Kind,
}

// aggregate sorts a run's trials into sections; the kind of each load reports its section.
func aggregate(trials []results.Trial, baseline string) []*model.Section {
	return model.Aggregate(kinds, trials, baseline)
}
