// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// paramSync is the method by which several balancers of IPVS continue each other's connections: one of the names of
// ipvsSyncs.
const paramSync = "sync"

// ipvsSync is such a method.
type ipvsSync struct {
	// name is the value of the parameter.
	name string
	// threshold is the value of net.ipv4.vs.sync_threshold; empty means that no sync daemon runs.
	threshold string
	// sloppy makes the kernel select a server also for a packet that begins no connection (net.ipv4.vs.sloppy_tcp).
	// With a hash, it selects the same server as the previous balancer.
	sloppy bool
	// words describe the method in a note.
	words string
}

// ipvsSyncs are the methods (Documentation/networking/ipvs-sysctl.rst), the default first.
var ipvsSyncs = []ipvsSync{
	{name: "none", words: "the balancers tell each other nothing"},
	{name: "usual", threshold: usualThreshold,
		words: "each balancer's kernel runs both sync daemons, master and backup, and tells of a connection with its third packet and each fiftieth after that (net.ipv4.vs.sync_threshold 3 50)"},
	{name: "every", threshold: "0 1",
		words: "each balancer's kernel runs both sync daemons, master and backup, and tells of a connection with each of its packets (net.ipv4.vs.sync_threshold 0 1)"},
	{name: "sloppy", sloppy: true,
		words: "the balancers tell each other nothing, and choose a server for a packet of a connection that they do not know (net.ipv4.vs.sloppy_tcp)"},
}

func syncNames() (names []string) {
	for _, s := range ipvsSyncs {
		names = append(names, s.name)
	}
	return names
}

// syncOf returns the method that params name.
func syncOf(params subject.Params) ipvsSync {
	name, _ := params[paramSync].(string)
	if i := slices.IndexFunc(ipvsSyncs, func(s ipvsSync) bool { return s.name == name }); i >= 0 {
		return ipvsSyncs[i]
	}
	return ipvsSyncs[0]
}

// set applies the method to a host's kernel, and replaces the settings of an earlier run.
func (s ipvsSync) set(h *lab.Host) error {
	sloppy := "0"
	if s.sloppy {
		sloppy = "1"
	}
	return errors.Join(h.Set(sloppyTCP, sloppy), h.Set(syncThreshold, cmp.Or(s.threshold, usualThreshold)))
}

// startSync starts both sync daemons of a host's kernel, over its port to the switch. The master sends with an ID of
// its own, and the backup accepts all IDs. stopSync ends them.
func startSync(ctx context.Context, h *lab.Host, id int) error {
	for _, daemon := range [][]string{{"master", strconv.Itoa(id)}, {"backup", "0"}} {
		if err := subject.RunProgram(ctx, h, ipvsadmProgram, "--start-daemon", daemon[0], "--mcast-interface", h.Interface,
			"--syncid", daemon[1]); err != nil {
			return err
		}
	}
	return nil
}

func stopSync(ctx context.Context, h *lab.Host) error {
	for _, daemon := range []string{"master", "backup"} {
		if err := subject.RunProgram(ctx, h, ipvsadmProgram, "--stop-daemon", daemon); err != nil {
			return err
		}
	}
	return nil
}

const (
	ipvsadmProgram = "ipvsadm"
	syncThreshold  = "net.ipv4.vs.sync_threshold"
	// usualThreshold is the kernel's default.
	usualThreshold = "3 50"
	sloppyTCP      = "net.ipv4.vs.sloppy_tcp"
	// syncHandoverAge is the age at which a connection has been synchronised at the latest. The kernel's thread looks
	// for messages once a second, and a message that is not full waits for two seconds (IPVS_SYNC_CHECK_PERIOD and
	// IPVS_SYNC_FLUSH_TIME of its ip_vs_sync.c).
	syncHandoverAge = 4 * time.Second
)
