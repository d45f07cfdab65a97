// SPDX-License-Identifier: Apache-2.0

package datapath

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

// register is what the control plane knows of what the data plane has. It changes
// only when the data plane has.
type register struct {
	state lb.State
	// records are in the order of the state.
	records []*record
	byKey   map[lb.ServiceKey]*record
	places  *places
	// unused says whether no packet of a service was sent on yet; nil: that is not asked.
	unused func(*record) bool
	// What the janitor knows of them, by index and by id.
	flowBackends []flowtable.Backend
	flowServices []flowtable.Service
}

func newRegister() *register {
	return &register{byKey: map[lb.ServiceKey]*record{}, places: newPlaces()}
}

// revision is what is to become of the data plane: put together first, and made as a
// whole or not at all.
type revision struct {
	state   lb.State
	records []*record
	// services are those that are new or differ, in the order of the state, and left
	// those that are no more.
	services []served
	left     []*record
	places   *placeChange
	summary
}

// summary is what the services need of the program and of the shared maps.
type summary struct {
	// modes has a bit for each that a service has.
	modes uint32
	// remembers: the flows of some service are remembered, all of them.
	remembers bool
	// lists: some service does not serve every client.
	lists bool
	// hairpins: some service is a hairpin.
	hairpins bool
	// poolAnswers: some service of full NAT answers what it cannot send on.
	poolAnswers bool
}

// summarize takes note of a service.
func (s *summary) summarize(r *record) {
	s.modes |= 1 << modeNumbers[r.service.Mode]
	s.lists = s.lists || r.service.Listed()
	if r.service.IsHairpin {
		// A few clients of the host's own are no reason to make larger tables of flows.
		s.hairpins = true
		return
	}
	s.remembers = s.remembers || r.remembers
	s.poolAnswers = s.poolAnswers || r.service.Mode == lb.FullNAT && r.service.Limits.Refuse == lb.RefuseByReset
}

// served is a service before, nil if there was none, and after a change.
type served struct{ was, is *record }

// plan says what is to change for a state. Errors are of what cannot be.
func (r *register) plan(state lb.State, tableSize uint32, now time.Time) (*revision, error) {
	c := &revision{state: state, records: make([]*record, len(state.Services)), places: r.places.beginChange(now)}
	stay := 0
	for i := range state.Services {
		service := &state.Services[i]
		was := r.find(i, service.Key())
		if was != nil {
			stay++
		}
		if was != nil && was.service.Same(service) {
			c.records[i] = was
			c.summarize(was)
			continue
		}
		is := &record{key: service.Key(), service: *service, remembers: service.Tracked(), digests: new(digests),
			published: now}
		if was != nil {
			is.published = was.published
		}
		c.records[i] = is
		c.summarize(is)
		c.services = append(c.services, served{was, is})
	}
	if stay < len(r.records) {
		c.findLeft(r)
	}
	if err := c.build(r, tableSize, now); err != nil {
		return nil, err
	}
	c.assignPlaces()
	return c, nil
}

// unchanged returns a change of nothing.
func (r *register) unchanged(now time.Time) *revision {
	c := &revision{state: r.state, records: r.records, places: r.places.beginChange(now)}
	c.places.free = r.places.free
	return c
}

// find returns the record of a service, which is mostly where it was.
func (r *register) find(i int, key lb.ServiceKey) *record {
	if i < len(r.records) && r.records[i].key == key {
		return r.records[i]
	}
	return r.byKey[key]
}

// findLeft lists the services that are no more.
func (c *revision) findLeft(r *register) {
	present := make(map[lb.ServiceKey]bool, len(c.records))
	for _, is := range c.records {
		present[is.key] = true
	}
	for _, was := range r.records {
		if !present[was.key] {
			c.left = append(c.left, was)
		}
	}
}

// build gives the services their tables. Those that would be the same again are
// taken over: building is most of what a change costs.
func (c *revision) build(r *register, tableSize uint32, now time.Time) error {
	var recipes []tables.Recipe
	var of []int
	built := make([]*tables.Table, len(c.services))
	for i, s := range c.services {
		recipe := tables.RecipeOf(&s.is.service, tableSize)
		if s.was != nil {
			if have := s.was.view.Find(&recipe); have != nil {
				built[i] = have
				continue
			}
			recipe.Full = s.was.view.FindFull(&recipe.FullRecipe)
		}
		recipes, of = append(recipes, recipe), append(of, i)
	}
	if err := tables.CheckMemory(recipes, func() memleft.Left { return memleft.Read(os.DirFS("/")) }); err != nil {
		return err
	}
	made, failed, err := tables.BuildAll(recipes)
	if err != nil {
		return fmt.Errorf("service %s: %w", c.services[of[failed]].is.service.Name, err)
	}
	for n, i := range of {
		built[i] = made[n]
	}
	for i, s := range c.services {
		s.is.view = s.view(built[i], now, c.state.Fresh || s.begins(r, now))
	}
	return nil
}

// firstTables is for how long the tables of a service that has just come may be incomplete: until the MAC addresses of
// its backends are known.
const firstTables = lb.DefaultUDPWindow

// begins says whether there is no flow of a service yet that has just come, because none of its packets was sent on.
// UDP's packets do not say that they are new: each would go by the first table for the whole window, which may have
// only the backend whose MAC address was known first. A datagram that comes just now begins where the next one does not
// go.
func (s served) begins(r *register, now time.Time) bool {
	return s.was != nil && s.was.service.Protocol == lb.UDP && r.unused != nil &&
		now.Sub(s.was.published) < firstTables &&
		r.unused(s.was)
}

// view returns that of the service with its next table; fresh: there are no flows that went by the one before. A
// transition of other balancers goes on.
func (s served) view(next *tables.Table, now time.Time, fresh bool) tables.View {
	if s.was == nil || fresh && !s.was.view.InTransition() {
		return tables.View{}.With(next, now, 0, tables.TableChange{})
	}
	before, after := &s.was.service, &s.is.service
	return s.was.view.With(next, now, tables.Window(after), tables.TableChange{
		LookUp: s.was.remembers && !s.is.remembers,
		Rehash: before.BySource() != after.BySource(),
	})
}

// assignPlaces gives services and backends their places.
func (c *revision) assignPlaces() {
	r := c.places
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

// commit takes note that the change was made.
func (r *register) commit(c *revision) {
	r.places.pool = c.numbers()
	c.places.commit()
	r.places.commitGroups(c)
	r.noteFlows(c)
	for _, was := range c.left {
		delete(r.byKey, was.key)
	}
	for _, s := range c.services {
		r.byKey[s.is.key] = s.is
	}
	r.state, r.records = c.state, c.records
}

// neededModes returns those that the program must know, as bits. Endpoints of backends
// that have left need NAT.
func (c *revision) neededModes() uint32 {
	modes := c.modes
	if len(c.places.gone) > 0 || len(c.places.places.previous) > len(c.places.forgotten) {
		modes |= 1 << objects.XDPModeMODE_NAT
	}
	return modes
}
