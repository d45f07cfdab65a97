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
	// Unused reports whether the data plane has forwarded no packet of a service yet. Where it is nil, every service
	// counts as used.
	Unused func(*Record) bool
	// SocketsAt returns how many sockets of this host are counted as flows of the backend with an index. Where it is
	// nil, there are none.
	SocketsAt func() map[uint32]uint32
	// The janitor's view of backends, by index, and of services, by id.
	FlowBackends []flowtable.Backend
	FlowServices []flowtable.Service
}

func NewRegister() *Register {
	return &Register{ByKey: map[lb.ServiceKey]*Record{}, Places: newPlaces()}
}

// Revision is a prepared change of the data plane, which is applied completely or not at all.
type Revision struct {
	State   lb.State
	Records []*Record
	// services are new or changed services, in the order of the state, and removed are the removed ones.
	services []serviceChange
	removed  []*Record
	Places   *PlaceChange
	requirements
}

// requirements has the features of the program, and the shared maps, that the services need.
type requirements struct {
	// Modes has a bit for each mode of a service.
	Modes uint32
	// schedulers has a bit for each scheduler of a service. Every program has the code of SCHEDULER_HASH.
	schedulers uint32
	// Remembers: all flows of some service are remembered.
	Remembers bool
	// lists: some service does not serve every client.
	lists bool
	// hairpins: some service is a hairpin.
	hairpins bool
	// poolAnswers: some full-NAT service answers packets that it cannot forward.
	poolAnswers bool
}

// require adds the requirements of a service.
func (s *requirements) require(r *Record) {
	s.Modes |= 1 << ModeNumbers[r.Service.Mode]
	s.schedulers |= 1 << schedulerNumbers[r.Service.Scheduler] &^ (1 << objects.XDPSchedulerSCHEDULER_HASH)
	s.lists = s.lists || r.Service.RestrictsClients()
	if r.Service.IsHairpin {
		// The few clients of a hairpin do not need larger tables of flows.
		s.hairpins = true
		return
	}
	s.Remembers = s.Remembers || r.Remembers
	s.poolAnswers = s.poolAnswers || r.Service.Mode == lb.FullNAT && r.Service.Limits.Refuse == lb.RefuseByReset
}

// serviceChange is a service before a change, nil if there was none, and after it.
type serviceChange struct{ before, after *Record }

// Plan returns the change to a state. Errors name the parts of the state that are impossible.
func (r *Register) Plan(state lb.State, tableSize uint32, now time.Time) (*Revision, error) {
	c := &Revision{State: state, Records: make([]*Record, len(state.Services)), Places: r.Places.beginChange(now)}
	c.Places.countSockets = r.SocketsAt
	stay := 0
	for i := range state.Services {
		service := &state.Services[i]
		before := r.find(i, service.Key())
		if before != nil {
			stay++
		}
		if before != nil && before.Service.Same(service) {
			c.Records[i] = before
			c.require(before)
			continue
		}
		after := &Record{Key: service.Key(), Service: *service, Remembers: service.Tracked(), digests: new(digests),
			published: now}
		if before != nil {
			after.published = before.published
		}
		c.Records[i] = after
		c.require(after)
		c.services = append(c.services, serviceChange{before, after})
	}
	if stay < len(r.Records) {
		c.findRemoved(r)
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

// find returns the record of a service, most often at the same index as before.
func (r *Register) find(i int, key lb.ServiceKey) *Record {
	if i < len(r.Records) && r.Records[i].Key == key {
		return r.Records[i]
	}
	return r.ByKey[key]
}

// findRemoved lists the removed services.
func (c *Revision) findRemoved(r *Register) {
	present := make(map[lb.ServiceKey]bool, len(c.Records))
	for _, after := range c.Records {
		present[after.Key] = true
	}
	for _, before := range r.Records {
		if !present[before.Key] {
			c.removed = append(c.removed, before)
		}
	}
}

// build sets the services' tables. Unchanged tables are reused: building is most of the cost of a change.
func (c *Revision) build(r *Register, tableSize uint32, now time.Time) error {
	var recipes []tables.Recipe
	var owners []int
	built := make([]*tables.Table, len(c.services))
	for i, s := range c.services {
		recipe := tables.RecipeOf(&s.after.Service, tableSize)
		if s.before != nil {
			if existing := s.before.View.Find(&recipe); existing != nil {
				built[i] = existing
				continue
			}
			recipe.Full = s.before.View.FindFull(&recipe.FullRecipe)
		}
		recipes, owners = append(recipes, recipe), append(owners, i)
	}
	if err := tables.CheckMemory(recipes, func() memleft.Available { return memleft.Read(os.DirFS("/")) }); err != nil {
		return err
	}
	results, failed, err := tables.BuildAll(recipes)
	if err != nil {
		return fmt.Errorf("service %s: %w", c.services[owners[failed]].after.Service.Name, err)
	}
	for n, i := range owners {
		built[i] = results[n]
	}
	for i, s := range c.services {
		s.after.View = s.view(built[i], now, c.State.Fresh || s.hasNoFlows(r, now))
	}
	return nil
}

// FirstTables is for how long the tables of a new service may lack backends whose MAC addresses are not known yet.
const FirstTables = lb.DefaultUDPWindow

// hasNoFlows reports whether a new service has no flow yet, because none of its packets was forwarded. Whether a
// datagram begins a flow is not visible: for the complete window, each would use the first table, which may only have
// the backend whose MAC address was known first. In exchange, a datagram that arrives during the change may go to
// another backend than the next datagram.
func (s serviceChange) hasNoFlows(r *Register, now time.Time) bool {
	return s.before != nil && s.before.Service.Protocol == lb.UDP && r.Unused != nil &&
		now.Sub(s.before.published) < FirstTables &&
		r.Unused(s.before)
}

// view returns the service's view with its next table; fresh: the previous table had no flows. A transition that was
// taken over from other balancers continues.
func (s serviceChange) view(next *tables.Table, now time.Time, fresh bool) tables.View {
	if s.before == nil || fresh && !s.before.View.InTransition() {
		return tables.View{}.With(next, now, 0, tables.TableChange{})
	}
	before, after := &s.before.Service, &s.after.Service
	return s.before.View.With(next, now, tables.Window(after), tables.TableChange{
		LookUp: s.before.Remembers && !s.after.Remembers,
		Rehash: before.BySource() != after.BySource(),
	})
}

// assignPlaces assigns services their ids and backends their places.
func (c *Revision) assignPlaces() {
	r := c.Places
	for _, before := range c.removed {
		r.removeEndpoints(before)
	}
	for _, s := range c.services {
		if s.before != nil {
			r.removeEndpoints(s.before)
		}
	}
	for _, s := range c.services {
		r.assignService(s.after, s.before)
	}
	for _, before := range c.removed {
		r.removeService(before)
	}
	for _, s := range c.services {
		r.claimEndpoints(s.after)
	}
	r.assign()
	for _, s := range c.services {
		r.addEndpoints(s.after)
	}
}

// NeededModes returns the modes that the program must support, as bits. Endpoints of backends that have left need NAT.
func (c *Revision) NeededModes() uint32 {
	modes := c.Modes
	if len(c.Places.removedEndpoints) > 0 || len(c.Places.Places.Previous) > len(c.Places.expired) {
		modes |= 1 << objects.XDPModeMODE_NAT
	}
	return modes
}

// AcceptsFlows reports whether other balancers' flows of a backend are accepted: service and backend are configured,
// and packets look up their entries.
func (r *Register) AcceptsFlows(key lb.BackendKey) bool {
	record := r.ByKey[key.Service]
	_, known := r.Places.Backends[key]
	return record != nil && known && record.LooksUpFlows()
}

// pool returns full NAT's source addresses and ports, none where no service has that mode.
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
