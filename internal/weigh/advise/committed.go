// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// committed are the results files that advice is based on, in the order in which they are searched, with the selection
// of their trials.
var committed = []struct {
	name string
	keep func(*results.Trial) bool
}{
	{"demo", loads("ab")},
	{"l2dsr-bmt-quick", loads("ab", "wrk")},
	{"l2dsr-bmt", loads("https", "https-kept")},
	{"loxilb-graviton", func(t *results.Trial) bool {
		return t.Load == "bulk" && t.Params["streams"] == 100.0 || t.Load != "bulk" && t.Params["concurrency"] == 100.0
	}},
	{"dns-udp", func(t *results.Trial) bool { return t.Load == "full" && t.Params["backends"] == 3.0 }},
	{"proxy", loads("wrk", "https")},
	{"packets", plainPackets},
	{"balancers-alone-quick", func(t *results.Trial) bool { return t.Params["event"] == "lb-kill" }},
	{"distribution", func(t *results.Trial) bool { return t.Params["backends"] == 25.0 }},
	{"memory", func(t *results.Trial) bool { return t.Params["flows"] == 1e6 }},
}

func loads(names ...string) func(*results.Trial) bool {
	return func(t *results.Trial) bool { return slices.Contains(names, t.Load) }
}

// plainPackets keeps packets of the plain case: IPv4, TCP, the most flows, schedulers that are advised, no special
// configuration.
func plainPackets(t *results.Trial) bool {
	for _, special := range []string{"tag", "change", "configured"} {
		if t.Params[special] != nil {
			return false
		}
	}
	scheduler := t.Params["scheduler"]
	if scheduler != nil && !slices.Contains([]any{"maglev", "rr", "lc"}, scheduler) {
		return false
	}
	outer := t.Params["outer"] == nil || t.Params["outer"] == "ipv4"
	return outer && t.Params["family"] == "ipv4" && t.Params["protocol"] == "tcp" && t.Params["flows"] == 1048576.0 &&
		t.Params["packets"] != "foreign"
}

// comparedSubjects are the other programs' subjects that advice names.
var comparedSubjects = []string{"direct", "haproxy-http", "haproxy-tcp", "iptables-nth"}

// named reports whether advice may name a trial's subject.
func named(t *results.Trial) bool {
	return strings.HasPrefix(t.Subject, "jeoul-") || slices.Contains(comparedSubjects, t.Subject)
}

// Committed returns the evidence of the results files in a directory, in its embedded form.
func Committed(dir string) (*Evidence, error) {
	e := &Evidence{}
	for _, c := range committed {
		name := c.name + ".json.gz"
		run, err := results.Load(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		source := SourceOf("docs/results/"+name, run, func(t *results.Trial) bool { return named(t) && c.keep(t) })
		if len(source.Points) == 0 {
			return nil, fmt.Errorf("%s has no valid trial that advice rests on", name)
		}
		e.Sources = append(e.Sources, source)
	}
	return e, nil
}
