// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowsync"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// onNew is called for a new data plane before it is used; tests replace its kernel there.
var onNew = func(*Datapath) {}

// newDatapath returns a data plane without programs, maps or configuration.
func newDatapath(options Options) *Datapath {
	d := &Datapath{options: options, programs: loader.KindFor, kernel: loader.ThisKernel,
		published: &readview.Published{},
		stop:      make(chan struct{}), flowsCounted: make(chan struct{}, 1), now: time.Now, secret: rand.Uint64(),
		register: generation.NewRegister(), janitor: flowtable.NewJanitor(options.Timeouts)}
	d.Reader = readview.NewReader(d.published, d.janitor)
	d.Exchange = flowsync.New(d.published, d.janitor, func() time.Time { return d.now() })
	return d
}

// Open checks rights and the interfaces. It loads and attaches nothing yet. It takes over a data plane that was kept,
// and changes nothing of it before the first Apply: see Adopted.
func Open(options Options) (*Datapath, error) {
	options = options.withDefaults()
	options.Interfaces = slices.Clone(options.Interfaces)
	if _, err := attach.Ports(options.Interfaces); err != nil {
		return nil, err
	}
	// Kernels before 5.11 charge maps to a limit that is small by default;
	// where raising it is refused, loading says so itself.
	_ = rlimit.RemoveMemlock()
	d := newDatapath(options)
	d.findPorts, d.attempts = attach.Ports, attach.Attempts
	d.keeper, d.absent = keeper.New(options.Keep), LongAbsence
	d.tags = attach.NewTags(options.DisableFeature, options.RestoreFeature)
	onNew(d)
	d.probeWatchdog()
	if err := d.takeOver(); err != nil {
		return nil, err
	}
	d.register.Unused, d.register.SocketsAt = d.unused, d.socketsAt
	d.publishView()
	return d, nil
}

// NewDetached returns a datapath for one interface that does not exist, of the given MAC address: Apply loads its
// program without attaching it, for tests and measurements that run it by BPF_PROG_TEST_RUN.
// Options.Interfaces is ignored; the hook is XDP or TC.
func NewDetached(options Options, mac net.HardwareAddr) *Datapath {
	d := newDatapath(options.withDefaults())
	d.findPorts = func([]string) ([]attach.Port, error) { return []attach.Port{{MAC: mac}}, nil }
	d.detached = true
	d.attachments = []lb.Attachment{{Hook: options.Hook, Reason: "not attached"}}
	onNew(d)
	d.publishView()
	return d
}

// A mismatch of the program's and the configuration's limit of interfaces does not compile.
var _ [lb.MaxInterfaces]struct{} = [objects.XDPAgreementMAX_INTERFACES]struct{}{}

// Program returns the program that forwards on the first interface now, nil
// before the first Apply. It stays valid until the next Apply.
func (d *Datapath) Program() *ebpf.Program {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return nil
	}
	return d.current.Programs[0]
}
