// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// View is a view: a table with its key.
type View string

// The views, in the order of their keys, which are 1 and on.
const (
	Services  View = "services"
	Backends  View = "backends"
	Drops     View = "drops"
	Balancers View = "balancers"
	Limits    View = "limits"
	Changes   View = "operations"
)

// Views are all of them.
var Views = []View{Services, Backends, Drops, Balancers, Limits, Changes}

// trendWidth is how many columns a sparkline has.
const trendWidth = 12

// rateWidth is how many columns a rate takes.
const rateWidth = 6

// table makes a view of the figures; all has it show counters that are 0, too.
func (f *snapshotFigures) table(v View, all bool, now time.Time) *table {
	switch v {
	case Backends:
		return f.backendTable()
	case Drops:
		return f.dropTable(all)
	case Balancers:
		return f.balancerTable(now)
	case Limits:
		return f.limitTable()
	case Changes:
		return f.changeTable(now)
	}
	return f.serviceTable()
}

// rateColumns are the columns of rates, which rank from a number on.
func rateColumns(of func(i int) rates, rank int) []column {
	rate := func(title string, rank int, value func(rates) float64) column {
		return column{title: title, right: true, width: rateWidth, rank: rank,
			value: func(i int) float64 { return value(of(i)) },
			text: func(i int) string {
				if r := of(i); r.Known {
					return formatSI(value(r))
				}
				return "-"
			}}
	}
	return []column{
		rate("NEW/S", 0, func(r rates) float64 { return r.Connections }),
		rate("PKT/S", rank, func(r rates) float64 { return r.Packets }),
		rate("BIT/S", rank+1, func(r rates) float64 { return r.Bits }),
		rate("BACK/S", rank+2, func(r rates) float64 { return r.ReturnedBits }),
	}
}

// numberColumn is a column of exact counts.
func numberColumn(title string, rank int, of func(i int) uint64) column {
	return column{title: title, right: true, rank: rank,
		text:  func(i int) string { return formatCount(of(i)) },
		value: func(i int) float64 { return float64(of(i)) }}
}

func splitWords(title string, rank int, of func(i int) string) column {
	return column{title: title, rank: rank, text: of}
}

func trendColumn(rank int, of func(i int) []float64) column {
	return column{title: "TREND", width: trendWidth, rank: rank, trend: of}
}

func (f *snapshotFigures) serviceTable() *table {
	row := func(i int) *serviceRow { return &f.services[i] }
	columns := []column{
		splitWords("SERVICE", 0, func(i int) string { return row(i).Name }),
		splitWords("ADDRESS", 6, func(i int) string { return row(i).Address }),
		splitWords("MODE", 7, func(i int) string { return string(row(i).Mode) }),
		{title: "UP", right: true, width: 5, value: func(i int) float64 { return float64(row(i).BackendsUp) },
			text: func(i int) string { return fmt.Sprintf("%d/%d", row(i).BackendsUp, row(i).Backends) },
			tone: func(i int) tone {
				switch r := row(i); r.BackendsUp {
				case r.Backends:
					return good
				case 0:
					return bad
				}
				return warn
			}},
	}
	columns = append(columns, rateColumns(func(i int) rates { return row(i).rates }, 3)...)
	columns = append(columns,
		column{title: "ACTIVE", right: true, rank: 2, value: func(i int) float64 { return float64(row(i).Active) },
			text: func(i int) string {
				if !row(i).Tracked {
					return "-"
				}
				return formatCount(row(i).Active)
			}},
		numberColumn("TOTAL", 8, func(i int) uint64 { return row(i).Connections }),
		trendColumn(1, func(i int) []float64 { return row(i).trend }))
	return &table{columns: columns, rows: len(f.services), empty: "no service is configured",
		id:    func(i int) string { return serviceID(row(i).Name) },
		words: func(i int) string { return row(i).Name + " " + row(i).Address + " " + string(row(i).Mode) }}
}

// stateTone judges a backend's state: one that a person set on purpose is a warning.
func stateTone(s lb.BackendState) tone {
	switch s {
	case lb.Up:
		return good
	case lb.NoMAC, lb.NoRoute, lb.Unhealthy, lb.Ejected:
		return bad
	case lb.Standby:
		return plain
	}
	return warn
}

func (f *snapshotFigures) backendTable() *table {
	row := func(i int) *backendRow { return &f.backends[i] }
	columns := []column{
		splitWords("SERVICE", 0, func(i int) string { return row(i).Service }),
		splitWords("BACKEND", 0, func(i int) string { return row(i).Name }),
		splitWords("ADDRESS", 6, func(i int) string { return row(i).Address }),
		{title: "STATE", text: func(i int) string { return string(row(i).State) },
			tone: func(i int) tone { return stateTone(row(i).State) }},
		numberColumn("WEIGHT", 3, func(i int) uint64 { return uint64(row(i).Weight) }),
	}
	columns = append(columns, rateColumns(func(i int) rates { return row(i).rates }, 4)...)
	columns = append(columns,
		numberColumn("ACTIVE", 2, func(i int) uint64 { return uint64(row(i).Active) }),
		numberColumn("TOTAL", 8, func(i int) uint64 { return row(i).Connections }),
		column{title: "SHARE", right: true, width: 5, rank: 5, value: func(i int) float64 { return row(i).Share },
			text: func(i int) string { return formatPercent(row(i).Share) }},
		column{title: "DUE", right: true, width: 5, rank: 5, value: func(i int) float64 { return row(i).Due },
			text: func(i int) string { return formatPercent(row(i).Due) }},
		trendColumn(1, func(i int) []float64 { return row(i).trend }),
		splitWords("REASON", 7, func(i int) string { return row(i).Reason }))
	return &table{columns: columns, rows: len(f.backends), empty: "no backend is configured",
		id: func(i int) string { return backendID(row(i).Service, row(i).Name) },
		words: func(i int) string {
			r := row(i)
			return r.Service + "/" + r.Name + " " + r.Address + " " + string(r.State) + " " + r.Reason
		}}
}

func (f *snapshotFigures) dropTable(all bool) *table {
	drops := f.drops
	if !all {
		drops = slices.DeleteFunc(slices.Clone(drops), func(r dropRow) bool { return r.Packets == 0 })
	}
	row := func(i int) *dropRow { return &drops[i] }
	return &table{rows: len(drops), empty: "no packet was dropped or answered so far; a shows every outcome",
		id:    func(i int) string { return row(i).Name },
		words: func(i int) string { return row(i).Name + " " + row(i).Meaning },
		columns: []column{
			splitWords("OUTCOME", 0, func(i int) string { return row(i).Name }),
			{title: "PKT/S", right: true, width: rateWidth, value: func(i int) float64 { return row(i).Rate },
				text: func(i int) string { return formatSI(row(i).Rate) },
				tone: func(i int) tone {
					if row(i).Rate > 0 {
						return warn
					}
					return plain
				}},
			numberColumn("TOTAL", 1, func(i int) uint64 { return row(i).Packets }),
			trendColumn(2, func(i int) []float64 { return row(i).trend }),
			splitWords("MEANING", 3, func(i int) string { return row(i).Meaning }),
		}}
}

func (f *snapshotFigures) balancerTable(now time.Time) *table {
	row := func(i int) *balancerRow { return &f.balancers[i] }
	return &table{rows: len(f.balancers),
		id:    func(i int) string { return row(i).Kind + "\x00" + row(i).Name },
		words: func(i int) string { return row(i).Kind + " " + row(i).Name + " " + row(i).State + " " + row(i).Detail },
		columns: []column{
			splitWords("KIND", 0, func(i int) string { return row(i).Kind }),
			splitWords("NAME", 0, func(i int) string { return row(i).Name }),
			{title: "STATE", text: func(i int) string { return row(i).State }, tone: func(i int) tone {
				return row(i).tone
			}},
			{title: "FOR", right: true, rank: 1, text: func(i int) string { return formatSince(row(i).Since, now) },
				value: func(i int) float64 { return now.Sub(row(i).Since).Seconds() }},
			splitWords("DETAIL", 2, func(i int) string { return row(i).Detail }),
		}}
}

func (f *snapshotFigures) limitTable() *table {
	row := func(i int) *limitRow { return &f.limits[i] }
	tones := func(i int) tone { return row(i).tone() }
	return &table{rows: len(f.limits), empty: "no limit is in force",
		id:    func(i int) string { return row(i).Name },
		words: func(i int) string { return row(i).Name },
		columns: []column{
			splitWords("LIMIT", 0, func(i int) string { return row(i).Name }),
			{title: "USED", right: true, width: 5, value: func(i int) float64 { return row(i).Share }, tone: tones,
				text: func(i int) string { return formatPercent(row(i).Share) }},
			{title: "NOW", right: true, rank: 1, text: func(i int) string {
				return formatCount(uint64(row(i).Used +
					0.5))
			},
				value: func(i int) float64 { return row(i).Used }},
			{title: "OF", right: true, rank: 1, text: func(i int) string { return formatCount(uint64(row(i).Limit)) },
				value: func(i int) float64 { return row(i).Limit }},
			splitWords("BEYOND IT", 2, func(i int) string { return row(i).Consequence }),
		}}
}

func (f *snapshotFigures) changeTable(now time.Time) *table {
	changes := f.status.Operations.InForce
	drained := func(i int) time.Time {
		if d := changes[i].Drain; d != nil {
			return d.Deadline
		}
		return time.Time{}
	}
	return &table{rows: len(changes), empty: "every backend is as the configuration has it",
		id:    func(i int) string { return backendID(changes[i].Service, changes[i].Backend) },
		words: func(i int) string { return changes[i].String() + " " + changeText(&changes[i]) },
		columns: []column{
			splitWords("BACKEND", 0, func(i int) string { return changes[i].String() }),
			splitWords("OPERATION", 0, func(i int) string { return changeText(&changes[i]) }),
			{title: "OUT IN", right: true, rank: 1, value: func(i int) float64 { return drained(i).Sub(now).Seconds() },
				text: func(i int) string {
					switch d := drained(i); {
					case d.IsZero():
						return "-"
					case d.Before(now):
						return "passed"
					default:
						return formatAge(d.Sub(now))
					}
				}},
			numberColumn("FLOWS LEFT", 1, func(i int) uint64 { return changes[i].Left.Flows }),
			{title: "FOR", right: true, rank: 3, text: func(i int) string {
				return formatSince(changedAt(&changes[i]),
					now)
			},
				value: func(i int) float64 { return now.Sub(changedAt(&changes[i])).Seconds() }},
			splitWords("BY", 2, func(i int) string { return changedBy(&changes[i]) }),
		}}
}
