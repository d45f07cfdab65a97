// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/remark"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// UnknownInterface is the placeholder where neither the input nor the options name an interface.
const UnknownInterface = "INTERFACE"

// Finish returns the configuration as a file that Jeoul reads, with a comment at each service. Parts that Jeoul would
// reject are left out, with a remark. The error is ErrNothing where no service remains.
func (d *Draft) Finish() ([]byte, error) {
	d.settle()
	text, err := d.write()
	d.disown()
	return text, err
}

// write writes the file without the parts that Jeoul would reject.
func (d *Draft) write() ([]byte, error) {
	for {
		d.pruneRoutes()
		if len(d.Services) == 0 {
			return nil, ErrNothing
		}
		text, err := config.Write(d.config())
		if err != nil {
			return nil, err
		}
		_, err = config.Parse("the configuration made of "+d.Input, text)
		var problems yamlfile.Problems
		switch {
		case err == nil:
			return comment(text, d.heading(), d.comments())
		case !errors.As(err, &problems):
			return nil, err
		case !d.drop(problems):
			return nil, errors.New("import " + withoutPlace(problems[0].Error(), d.Input))
		}
	}
}

// settle gives services the parts that they lack: a mode, unique names, ports and defaults. It leaves out services that
// cannot be made.
func (d *Draft) settle() {
	d.checkSources()
	names := map[string]int{}
	d.Services = slices.DeleteFunc(d.Services, func(s *Service) bool {
		if d.Mode != "" {
			s.Mode = d.Mode
		}
		s.Mode = cmp.Or(s.Mode, lb.L2DSR)
		d.bound(s)
		d.keepPorts(s)
		if why := d.cannot(s, len(names)); why != "" {
			d.Left(s.At, "%s", why)
			d.dropped = append(d.dropped, s)
			return true
		}
		s.Name = unique(names, Name(cmp.Or(s.Name, usualName(s))))
		nameBackends(s)
		s.usual()
		return false
	})
}

// bound leaves out backends beyond the maximum of a service.
func (d *Draft) bound(s *Service) {
	for _, at := range s.BackendAt[min(len(s.BackendAt), config.MaxBackends):] {
		d.Left(at, "a service has up to %d backends", config.MaxBackends)
	}
	s.Backends, s.BackendAt = s.Backends[:min(len(s.Backends), config.MaxBackends)],
		s.BackendAt[:min(len(s.BackendAt), config.MaxBackends)]
}

// keepPorts gives backends the service's port where the mode does not change ports.
func (d *Draft) keepPorts(s *Service) {
	for j := range s.Backends {
		b := &s.Backends[j]
		if b.Port == 0 {
			b.Port = s.Port
		}
		if s.Mode.KeepsPort() && b.Port != s.Port {
			d.Approximate(s.BackendAt[j],
				"mode %s leaves ports as they are: the backend gets packets to port %d, not %d; let it listen there, or give --mode nat or fullnat", s.Mode, s.Port, b.Port)
			b.Port = s.Port
		}
	}
}

// cannot returns the reason why a service cannot be made, or "". services is the number of services before it.
func (d *Draft) cannot(s *Service, services int) string {
	switch {
	case s.Unsafe != "":
		return s.Unsafe
	case services >= config.MaxServices:
		return fmt.Sprintf("a configuration has up to %d services", config.MaxServices)
	case len(s.Backends) == 0 && !s.Discovery.On():
		return "no backend of the service could be carried over; see the remarks on them"
	case s.Mode == lb.FullNAT && !slices.ContainsFunc(d.fullNAT(), func(a netip.Addr) bool {
		return a.Is4() == s.VIP.Is4()
	}):
		return fmt.Sprintf(
			"mode %s sends from an address of the balancer of the VIP's family: name one by --source, or choose another --mode", s.Mode)
	}
	return ""
}

// usual sets the defaults.
func (s *Service) usual() {
	if !s.Scheduler.Weighted() && s.SlowStart > 0 {
		s.Scheduler = map[lb.Scheduler]lb.Scheduler{lb.RoundRobin: lb.WeightedRoundRobin,
			lb.LeastConnections: lb.WeightedLeastConnections}[s.Scheduler]
		s.Scheduler = cmp.Or(s.Scheduler, map[lb.Mode]lb.Scheduler{lb.ModeProxy: lb.WeightedRoundRobin}[s.Mode],
			lb.Maglev)
	}
	if !s.Scheduler.Weighted() { // here weights only say whether a backend takes new flows
		for j := range s.Backends {
			s.Backends[j].Weight = min(s.Backends[j].Weight, 1)
		}
	}
	if s.IsMonitored() {
		s.Checks.Panic = lb.DefaultPanicFor(s.OnEmpty)
		s.Checks.OnDown = cmp.Or(s.Checks.OnDown, lb.DefaultOnDown(s.Protocol))
	}
	for k := range s.Checks.List {
		c := &s.Checks.List[k]
		SetTimes(c, 0, 0)
		c.Rise, c.Fall = min(max(c.Rise, 1), 100), min(max(c.Fall, 1), 100)
		if c.Port == s.Port && !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Port != s.Port }) {
			c.Port = 0
		}
	}
}

// usualName returns a name from the properties that make a service unique.
func usualName(s *Service) string {
	return fmt.Sprintf("%s-%s-%d", s.Protocol, s.VIP, s.Port)
}

// Name returns a text as a valid name.
func Name(text string) string {
	const longest = 56 // leaves room for a number
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:", r) {
			return r
		}
		return '-'
	}, text))
	return string(runes[:min(len(runes), longest)])
}

// unique returns a name that is not in given yet, and adds it.
func unique(given map[string]int, name string) string {
	free := name
	for given[free] > 0 {
		given[name]++
		free = fmt.Sprintf("%s-%d", name, given[name])
	}
	given[free] = 1
	return free
}

// nameBackends names backends without a name by their address and, where several share the address, port.
func nameBackends(s *Service) {
	hosts, names := map[netip.Addr]int{}, map[string]int{}
	for _, b := range s.Backends {
		hosts[b.Address]++
	}
	for j := range s.Backends {
		b := &s.Backends[j]
		name := b.Name
		if name == "" {
			name = b.Address.String()
			if hosts[b.Address] > 1 {
				name += fmt.Sprintf("-%d", b.Port)
			}
		}
		b.Name = unique(names, Name(name))
	}
}

// fullNAT returns the addresses of the full NAT pool: those of the options, or else those of the input.
func (d *Draft) fullNAT() []netip.Addr {
	if len(d.Sources) > 0 {
		return d.Sources
	}
	var addrs []netip.Addr
	for _, s := range d.sources {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

// checkSources leaves out source addresses of the input that are a VIP or the address of a backend.
func (d *Draft) checkSources() {
	taken := map[netip.Addr]bool{}
	for _, s := range d.Services {
		taken[s.VIP] = true
		for _, b := range s.Backends {
			taken[b.Address] = true
		}
	}
	d.sources = slices.DeleteFunc(d.sources, func(s source) bool {
		if taken[s.addr] {
			d.Left(s.at, "%s is a VIP or a backend's address, and mode %s sends from another; name one by --source",
				s.addr, lb.FullNAT)
		}
		return taken[s.addr]
	})
}

// config returns the configuration with the services.
func (d *Draft) config() *config.Config {
	cfg := config.New()
	switch {
	case len(d.Interfaces) > 0:
		cfg.Interfaces = d.Interfaces
	case len(d.interfaces) > 0:
		cfg.Interfaces = d.interfaces
	default:
		cfg.Interfaces = []string{UnknownInterface}
	}
	for _, s := range d.Services {
		cfg.Services = append(cfg.Services, s.Service)
		if s.Mode == lb.FullNAT {
			cfg.FullNAT.Addresses = nil
			for _, address := range d.fullNAT() {
				cfg.FullNAT.Addresses = append(cfg.FullNAT.Addresses, config.PoolAddress{Address: address})
			}
		}
		if s.Mode == lb.ModeProxy {
			cfg.Proxy = d.Engine
		}
	}
	cfg.VRRP = d.VRRP
	cfg.Flows.Timeouts = d.Timeouts.WithDefaults()
	return cfg
}

// problemAt matches the field of a problem in a service, or in one of its backends.
var problemAt = regexp.MustCompile(`^services\[(\d+)\](?:\.backends\[(\d+)\])?`)

// drop leaves out the services and backends that have problems. It returns false if a problem is in none of them.
func (d *Draft) drop(problems yamlfile.Problems) bool {
	if d.dropRoutes(problems) {
		return true // the next round reports further problems
	}
	services, backends := map[int]string{}, map[[2]int]string{}
	for _, problem := range problems {
		match := problemAt.FindStringSubmatch(problem.Field)
		if match == nil {
			return false
		}
		i, _ := strconv.Atoi(match[1])
		message := strings.TrimPrefix(problem.Field, match[0]+".") + ": " + problem.Message
		if match[2] == "" {
			services[i] = message
			continue
		}
		j, _ := strconv.Atoi(match[2])
		backends[[2]int{i, j}] = message
	}
	var kept []*Service
	for i, s := range d.Services {
		if why, bad := services[i]; bad {
			d.Left(s.At, "the service %s would be refused: %s", s.Name, withoutPlace(why, d.Input))
			d.dropped = append(d.dropped, s)
			continue
		}
		if d.dropBackends(i, s, backends); len(s.Backends) > 0 || s.Discovery.On() {
			kept = append(kept, s)
		}
	}
	d.Services = kept
	return true
}

// dropBackends leaves out the backends of service i that have problems.
func (d *Draft) dropBackends(i int, s *Service, problems map[[2]int]string) {
	var backends []lb.Backend
	var lines []remark.At
	for j, b := range s.Backends {
		if why, bad := problems[[2]int{i, j}]; bad {
			d.Left(s.BackendAt[j], "the backend %s would be refused: %s", b.Name, withoutPlace(why, d.Input))
			continue
		}
		backends, lines = append(backends, b), append(lines, s.BackendAt[j])
	}
	s.Backends, s.BackendAt = backends, lines
	if len(backends) == 0 && !s.Discovery.On() {
		d.Left(s.At, "no backend of the service %s could be carried over; see the remarks on them", s.Name)
	}
}

// withoutPlace replaces the name of the generated text in a message, because the user has never seen that text.
func withoutPlace(message, input string) string {
	return strings.ReplaceAll(message, "the configuration made of "+input+":", "line ")
}

// disown remarks on the backends of dropped services, unless another service has them.
func (d *Draft) disown() {
	kept := map[remark.At]bool{}
	for _, s := range d.Services {
		for _, at := range slices.Concat(s.BackendAt, []remark.At{s.At}) {
			kept[at] = true
		}
	}
	for _, s := range d.dropped {
		delete(d.carried, s.At)
		for _, at := range s.BackendAt {
			if !kept[at] && d.carried[at] {
				delete(d.carried, at)
				d.Left(at, "a backend of the service at %s, which is left out", s.At)
			}
		}
	}
}
