// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/cpus"
	"github.com/jeoul/jeoul/internal/tools/tune/plan"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
	"github.com/jeoul/jeoul/internal/tools/tune/untracked"
)

// Options describe the task of a host.
type Options struct {
	Role Role
	// Mode is the mode of the service; empty means l2dsr.
	Mode string
	// Interfaces are the cards that receive its traffic. Without one, items for interfaces do not apply.
	Interfaces []string
	// Services are the services whose connections need no tracking. Without one, items for services do not apply.
	Services []lb.ServiceKey
	// Profile is nil for the built-in profile.
	Profile *Profile
	// PacketCPUs are the CPUs that process packets; empty: the plan selects them.
	PacketCPUs cpuset.CPUSet
	// Root is the root of a file system to use instead of the machine's. The settings of its cards are in Root/ethtool.
	Root string
}

// Tuner compares a host with a profile. It is used on one thread.
type Tuner struct {
	opt    Options
	access setting.Access
	facts  *Facts
	cards  []*Interface
	plans  map[string]*plan.Plan
	// step is called between writes, where a kill must do no harm; nil outside tests.
	step func()
}

// New reads the host's facts. Errors: ErrRole, ErrMode, ErrInterface. Close the
// Tuner after use.
func New(opt Options) (*Tuner, error) {
	opt.Mode = cmp.Or(opt.Mode, "l2dsr")
	if !slices.Contains(Roles, opt.Role) {
		return nil, fmt.Errorf("%q: %w: use balancer, web or client", opt.Role, ErrRole)
	}
	if !slices.Contains(Modes(), opt.Mode) {
		return nil, fmt.Errorf("%q: %w: use %s", opt.Mode, ErrMode, strings.Join(Modes(), ", "))
	}
	if opt.Profile == nil {
		var err error
		if opt.Profile, err = Load(""); err != nil {
			return nil, err
		}
	}
	t := &Tuner{opt: opt}
	a, err := setting.Open(opt.Root)
	if err != nil {
		return nil, err
	}
	t.access = *a
	if err := t.readFacts(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close closes the sockets to the kernel.
func (t *Tuner) Close() error { return t.access.Cards.Close() }

// readFacts reads the facts of the host and of its cards, and plans its cores.
func (t *Tuner) readFacts() (err error) {
	if t.facts, err = readFacts(t.access.Tree); err != nil {
		return err
	}
	t.access.Cmdline = t.facts.CommandLine
	t.cards, t.plans = nil, map[string]*plan.Plan{}
	for _, name := range t.opt.Interfaces {
		card, err := readInterface(t.access.Tree, t.access.Cards, name)
		if err != nil {
			return err
		}
		share := plan.Quarter
		if t.opt.Role == RoleBalancer && t.opt.Mode != ModeProxy {
			share = plan.Most
		}
		p, err := plan.Make(t.facts.Topology, card.card(), share, t.opt.PacketCPUs)
		if err != nil {
			return err
		}
		t.cards = append(t.cards, card)
		t.plans[name] = p
	}
	return nil
}

// Check compares the host with the profile, and changes nothing.
func (t *Tuner) Check() *Report {
	r := t.report()
	for _, item := range t.opt.Profile.Items {
		if f, ok := t.find(item); ok {
			r.Findings = append(r.Findings, f)
		}
	}
	return r
}

// report returns a report without findings.
func (t *Tuner) report() *Report {
	r := &Report{Role: t.opt.Role, Mode: t.opt.Mode, Host: t.facts, Interfaces: t.cards,
		Notes: slices.Clone(t.facts.Notes)}
	if t.facts.Namespace {
		r.Notes = append(r.Notes, "this is a network namespace: what belongs to the machine is left alone")
	}
	if len(t.cards) == 0 {
		r.Notes = append(r.Notes,
			"no interface was named: name the one that traffic takes (--interface), and its items are looked at too")
	}
	for _, card := range t.cards {
		r.Notes = append(r.Notes, card.notes()...)
		if !card.Virtual {
			r.Plans = append(r.Plans, t.plans[card.Name].Draw())
		}
	}
	return r
}

// find compares the host with one item; false: the item is not for hosts of this role and mode.
func (t *Tuner) find(item Item) (Finding, bool) {
	if ok, _ := item.isFor(t.opt.Role, t.opt.Mode); !ok {
		return Finding{}, false
	}
	f := Finding{Item: item.ID, Setting: item.Setting, Matters: item.Matters, Unit: item.Unit, Why: item.Why,
		Cost: item.Cost, Source: item.Source, State: Absent}
	f.Document, f.DocumentWhy = item.Document.For(t.opt.Role), ""
	if item.Document != nil {
		f.DocumentWhy = item.Document.Why
	}
	if why := t.missingNeed(item); why != "" {
		f.Note = why
		return f, true
	}
	for _, k := range t.expand(item) {
		f.Settings = append(f.Settings, t.compareSetting(item, k))
	}
	if len(f.Settings) == 0 {
		f.Note = "the host has none"
		if strings.Contains(item.Setting, "{interface}") || strings.HasPrefix(item.Setting, string(setting.KindEthtool)) {
			f.Note = "no interface was named, or none has it"
		}
		if strings.Contains(item.Setting, "{service}") {
			f.Note = "no service was named: --service tcp/VIP:PORT"
		}
	}
	f.summarize()
	return f, true
}

// missingNeed returns a condition of an item that the host does not meet, or "".
func (t *Tuner) missingNeed(item Item) string {
	n := item.Needs
	switch {
	case n.Kernel != "" && t.facts.older(n.Kernel):
		return "since Linux " + n.Kernel
	case n.Cores > t.facts.CPUs:
		return fmt.Sprintf("for hosts with %d CPUs or more", n.Cores)
	case n.NUMA && t.facts.Nodes < 2:
		return "for hosts with several NUMA nodes"
	case n.Conntrack && !t.facts.Conntrack:
		return "connections are not tracked here"
	case n.Card == "physical" && len(t.cards) == 0:
		return "no interface was named"
	case n.Card == "physical" && !slices.ContainsFunc(t.cards, func(c *Interface) bool { return !c.Virtual }):
		return "the interface is virtual"
	case n.Queues > 0 && !slices.ContainsFunc(t.cards, func(c *Interface) bool {
		return c.card().MaxQueues >= n.Queues
	}):
		return fmt.Sprintf("for cards with %d queues or more", n.Queues)
	}
	return ""
}

// target is a setting of an item, with the object that it belongs to.
type target struct {
	key  setting.Key
	card *Interface // nil if it belongs to no card
	// index is a queue's number.
	index int
}

// expand lists the settings of an item on this host.
func (t *Tuner) expand(item Item) []target {
	kind, name, _ := strings.Cut(item.Setting, " ")
	about := func(card *Interface, index int, replace ...string) target {
		k := setting.Key{Kind: setting.Kind(kind), Name: strings.NewReplacer(replace...).Replace(name)}
		if k.Kind == setting.KindEthtool {
			k.Interface = card.Name
		}
		return target{k, card, index}
	}
	var all []target
	if setting.Kind(kind) != setting.KindEthtool && !strings.ContainsAny(name, "{") {
		return []target{about(t.firstCard(), 0)}
	}
	if strings.Contains(name, "{cpu}") {
		for _, cpu := range t.facts.Topology.Online().List() {
			all = append(all, about(nil, cpu, "{cpu}", strconv.Itoa(cpu)))
		}
		return all
	}
	if strings.Contains(name, "{service}") {
		for i, service := range t.opt.Services {
			all = append(all, about(nil, i, "{service}", untracked.Name(service)))
		}
		return all
	}
	for _, card := range t.cards {
		if card.Virtual && item.Needs.Card == "physical" {
			continue
		}
		named := card.Name
		if setting.Kind(kind) == setting.KindSysctl {
			// A dot in an interface's name is no separator.
			named = strings.ReplaceAll(named, ".", "/")
		}
		for _, slot := range slots(name, card) {
			all = append(all, about(card, slot.queue, "{interface}", named, "{irq}", slot.number, "{rx}", slot.number,
				"{tx}", slot.number))
		}
	}
	return all
}

// slot is a queue and its number in a setting's name.
type slot struct {
	queue  int
	number string
}

// slots lists the values of a placeholder in a name for a card.
func slots(name string, card *Interface) []slot {
	var all []slot
	switch {
	case strings.Contains(name, "{irq}"):
		for _, irq := range card.IRQs {
			all = append(all, slot{irq.Queue, strconv.Itoa(irq.Number)})
		}
	case strings.Contains(name, "{rx}"):
		for queue := range card.RX {
			all = append(all, slot{queue, strconv.Itoa(queue)})
		}
	case strings.Contains(name, "{tx}"):
		for queue := range card.TX {
			all = append(all, slot{queue, strconv.Itoa(queue)})
		}
	default:
		all = []slot{{}}
	}
	return all
}

func (t *Tuner) firstCard() *Interface {
	if len(t.cards) == 0 {
		return nil
	}
	return t.cards[0]
}

// compareSetting compares one setting with an item.
func (t *Tuner) compareSetting(item Item, at target) Setting {
	s := Setting{Key: at.key}
	machines := t.facts.Namespace && at.key.OfMachine(item.Scope)
	if at.card != nil && at.card.foreign && at.key.Kind == setting.KindFile {
		s.State, s.Note = Unread, "/sys shows another network namespace"
		return s
	}
	now, err := t.access.Read(at.key)
	switch {
	case machines && err != nil:
		s.State, s.Note = Machines, belongs
		return s
	case errors.Is(err, fs.ErrPermission):
		s.State, s.Note = Unread, "it takes more rights to read: run as root"
		return s
	case errors.Is(err, setting.ErrAbsent):
		s.State, s.Note = Absent, absentNote(at.key)
		return s
	case err != nil:
		s.State, s.Note = Unread, err.Error()
		return s
	}
	s.Now = now
	if item.Value.leaves() {
		s.State = Left
		return s
	}
	want, ok := t.want(item, at)
	if !ok {
		s.State, s.Note = Absent, "there is nothing to compute it from"
		return s
	}
	good, write := item.evaluate(at.key, now, want)
	s.Wanted, s.write = want, write
	switch {
	case good:
		s.State = Good
	case machines:
		s.State, s.Note = Machines, belongs
	case at.key.Kind == setting.KindCmdline:
		s.State, s.Note = Advised, "takes a reboot; --edit-grub writes it"
	default:
		s.State = Differs
	}
	return s
}

const belongs = "belongs to the machine, not to this namespace"

func absentNote(k setting.Key) string {
	switch k.Kind {
	case setting.KindEthtool:
		return "the driver does not have it"
	case setting.KindSysctl:
		return "this kernel does not have it"
	}
	return "this host does not have it"
}

// want computes the wanted value of a setting; false: there is no rule for it.
func (t *Tuner) want(item Item, at target) (string, bool) {
	if item.Value.plan == "" {
		value, err := item.Value.resolve(t.facts.fact(at.card))
		if item.Compare == CompareNonzero {
			value = "not zero"
		}
		return value, err == nil
	}
	if at.card == nil {
		return "", false
	}
	p := t.plans[at.card.Name]
	switch item.Value.plan {
	case "queues":
		return strconv.Itoa(p.Queues()), at.card.QueuesMax > 0
	case "irq":
		return strconv.Itoa(p.CPUOf(at.index)), at.index < p.Queues()
	case "rps":
		return cpus.Mask(p.Spread(at.index)), at.index < p.Queues()
	case "xps":
		return cpus.Mask(p.Senders(at.index)), at.index < p.Queues()
	case "threaded":
		if p.Shared {
			return "1", true
		}
		return "0", true
	case "isolated":
		return p.Isolated().String(), !p.Isolated().IsEmpty()
	}
	return "managed_irq,domain," + p.Isolated().String(), !p.Isolated().IsEmpty()
}
