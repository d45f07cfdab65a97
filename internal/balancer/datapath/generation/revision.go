// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"fmt"
	"os"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// Register is the control plane's record of the data plane's contents. It changes only after the data plane has.
type Register struct {
	State lb.State
	// Records are in the order of the state.
	Records []*Record
	ByKey   map[lb.ServiceKey]*Record
	Places  *Places
	// Unused says whether the data plane has forwarded no packet of a service yet. Where it is nil, every service
	// counts as used.
	Unused func(*Record) bool
	// The janitor's view of backends, by index, and of services, by id.
	FlowBackends []flowtable.Backend
	FlowServices []flowtable.Service
}

func NewRegister() *Register {
	return &Register{ByKey: map[lb.ServiceKey]*Record{}, Places: newPlaces()}
}

// Revision is a change of the data plane: prepared first, and made as a whole or not at all.
type Revision struct {
	State   lb.State
	Records []*Record
	// services are those that are new or differ, in the order of the state, and left those that were removed.
	services []served
	left     []*Record
	Places   *PlaceChange
	summary
}

// summary has the features of the program, and the shared maps, that the services need.
type summary struct {
	// Modes has a bit for each that a service has.
	Modes uint32
	// schedulers has a bit for each that a service has. Every program has the code of SCHEDULER_HASH.
	schedulers uint32
	// Remembers: the flows of some service are remembered, all of them.
	Remembers bool
	// lists: some service does not serve every client.
	lists bool
	// hairpins: some service is a hairpin.
	hairpins bool
	// poolAnswers: some service of full NAT answers packets that it cannot send on.
	poolAnswers bool
}

// summarize takes note of a service.
func (s *summary) summarize(r *Record) {
	s.Modes |= 1 << ModeNumbers[r.Service.Mode]
	s.schedulers |= 1 << schedulerNumbers[r.Service.Scheduler] &^ (1 << objects.XDPSchedulerSCHEDULER_HASH)
	s.lists = s.lists || r.Service.Listed()
	if r.Service.IsHairpin {
		// A few clients of the host's own are no reason to make larger tables of flows.
		s.hairpins = true
		return
	}
	s.Remembers = s.Remembers || r.Remembers
	s.poolAnswers = s.poolAnswers || r.Service.Mode == lb.FullNAT && r.Service.Limits.Refuse == lb.RefuseByReset
}

// served is a service before a change, nil if there was none, and after it.
type served struct{ was, is *Record }

// Plan returns the change that leads to a state. Errors name the parts of the state that cannot be had.
func (r *Register) Plan(state lb.State, tableSize uint32, now time.Time) (*Revision, error) {
	c := &Revision{State: state, Records: make([]*Record, len(state.Services)), Places: r.Places.beginChange(now)}
	stay := 0
	for i := range state.Services {
		service := &state.Services[i]
		was := r.find(i, service.Key())
		if was != nil {
			stay++
		}
		if was != nil && was.Service.Same(service) {
			c.Records[i] = was
			c.summarize(was)
			continue
		}
		is := &Record{Key: service.Key(), Service: *service, Remembers: service.Tracked(), digests: new(digests),
			published: now}
		if was != nil {
			is.published = was.published
		}
		c.Records[i] = is
		c.summarize(is)
		c.services = append(c.services, served{was, is})
	}
	if stay < len(r.Records) {
		c.findLeft(r)
	}
	if err := c.build(r, tableSize, now); err != nil {
		return nil, err
	}
	c.assignPlaces()
	return c, nil
}

// Unchanged returns an empty change.
func (r *Register) Unchanged(now time.Time) *Revision {
	c := &Revision{State: r.State, Records: r.Records, Places: r.Places.beginChange(now)}
	c.Places.free = r.Places.free
	return c
}

// find returns the record of a service, which is mostly where it was.
func (r *Register) find(i int, key lb.ServiceKey) *Record {
	if i < len(r.Records) && r.Records[i].Key == key {
		return r.Records[i]
	}
	return r.ByKey[key]
}

// findLeft lists the services that are no more.
func (c *Revision) findLeft(r *Register) {
	present := make(map[lb.ServiceKey]bool, len(c.Records))
	for _, is := range c.Records {
		present[is.Key] = true
	}
	for _, was := range r.Records {
		if !present[was.Key] {
			c.left = append(c.left, was)
		}
	}
}

// build gives the services their tables. Those that would be the same again are taken over: building is most of the
// cost of a change.
func (c *Revision) build(r *Register, tableSize uint32, now time.Time) error {
	var recipes []tables.Recipe
	var of []int
	built := make([]*tables.Table, len(c.services))
	for i, s := range c.services {
		recipe := tables.RecipeOf(&s.is.Service, tableSize)
		if s.was != nil {
			if have := s.was.View.Find(&recipe); have != nil {
				built[i] = have
				continue
			}
			recipe.Full = s.was.View.FindFull(&recipe.FullRecipe)
		}
		recipes, of = append(recipes, recipe), append(of, i)
	}
	if err := tables.CheckMemory(recipes, func() memleft.Left { return memleft.Read(os.DirFS("/")) }); err != nil {
		return err
	}
	made, failed, err := tables.BuildAll(recipes)
	if err != nil {
		return fmt.Errorf("service %s: %w", c.services[of[failed]].is.Service.Name, err)
	}
	for n, i := range of {
		built[i] = made[n]
	}
	for i, s := range c.services {
		s.is.View = s.view(built[i], now, c.State.Fresh || s.begins(r, now))
	}
	return nil
}

// FirstTables is for how long the tables of a new service may be incomplete: until the MAC addresses of its backends
// are known.
const FirstTables = lb.DefaultUDPWindow

// begins says whether a new service has no flow yet, because none of its packets was sent on. Datagrams do not show
// whether they begin a flow: each would go by the first table for the whole window, which may have only the backend
// whose MAC address was known first. A datagram that arrives during the change may so go to another backend than the
// next one.
func (s served) begins(r *Register, now time.Time) bool {
	return s.was != nil && s.was.Service.Protocol == lb.UDP && r.Unused != nil &&
		now.Sub(s.was.published) < FirstTables &&
		r.Unused(s.was)
}

// view returns the service's view with its next table; fresh: no flows went by the table before. A transition of other
// balancers goes on.
func (s served) view(next *tables.Table, now time.Time, fresh bool) tables.View {
	if s.was == nil || fresh && !s.was.View.InTransition() {
		return tables.View{}.With(next, now, 0, tables.TableChange{})
	}
	before, after := &s.was.Service, &s.is.Service
	return s.was.View.With(next, now, tables.Window(after), tables.TableChange{
		LookUp: s.was.Remembers && !s.is.Remembers,
		Rehash: before.BySource() != after.BySource(),
	})
}

// assignPlaces gives services and backends their places.
func (c *Revision) assignPlaces() {
	r := c.Places
	for _, was := range c.left {
		r.goneEndpoints(was)
	}
	for _, s := range c.services {
		if s.was != nil {
			r.goneEndpoints(s.was)
		}
	}
	for _, s := range c.services {
		r.service(s.is, s.was)
	}
	for _, was := range c.left {
		r.leaveService(was)
	}
	for _, s := range c.services {
		r.claimEndpoints(s.is)
	}
	r.assign()
	for _, s := range c.services {
		r.newEndpoints(s.is)
	}
}

// NeededModes returns the modes that the program must support, as bits. Endpoints of backends that have left need NAT.
func (c *Revision) NeededModes() uint32 {
	modes := c.Modes
	if len(c.Places.gone) > 0 || len(c.Places.Places.Previous) > len(c.Places.forgotten) {
		modes |= 1 << objects.XDPModeMODE_NAT
	}
	return modes
}

// Takes says whether other balancers' flows of a backend can be taken here: service and backend are configured, and
// packets look for their entries.
func (r *Register) Takes(key lb.BackendKey) bool {
	record := r.ByKey[key.Service]
	_, known := r.Places.Backends[key]
	return record != nil && known && record.LooksUp()
}

// pool returns the addresses and ports that full NAT sends from, none where no service has that mode.
func (c *Revision) pool() lb.Pool {
	if c.NeededModes()&(1<<objects.XDPModeMODE_FULLNAT) == 0 {
		return lb.Pool{}
	}
	return c.State.Pool
}

// hairpin returns the clients that hairpins serve, none where there are no hairpins.
func (c *Revision) hairpin() lb.Hairpin {
	if !c.hairpins {
		return lb.Hairpin{}
	}
	return c.State.Hairpin
}
