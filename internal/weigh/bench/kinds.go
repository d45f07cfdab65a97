// SPDX-License-Identifier: Apache-2.0

package bench

import "github.com/jeoul/jeoul/internal/weigh/bench/load/transact"

func init() {
	registered = []experiment{transactions{transact.CRR}, transactions{transact.RR}, arrivals{}, changeExperiment{},
		synFlood{}, wireLoad{}, dnsExperiment{}}
}
