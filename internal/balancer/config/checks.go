// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

func checksOf(s *lb.Service) *[]lb.Check { return &s.Checks.List }

// httpOf and those below return the part of a check that a type has, with its defaults. Parts that the check's type
// does not have are dropped when all is read.
func httpOf(c *lb.Check) *lb.HTTPCheck {
	if c.HTTP == nil {
		c.HTTP = &lb.HTTPCheck{Method: lb.DefaultCheckMethod, Path: lb.DefaultCheckPath}
	}
	return c.HTTP
}

func tlsOf(c *lb.Check) *lb.TLSCheck {
	if c.TLS == nil {
		c.TLS = &lb.TLSCheck{}
	}
	return c.TLS
}

func dnsOf(c *lb.Check) *lb.DNSCheck {
	if c.DNS == nil {
		c.DNS = &lb.DNSCheck{Type: lb.DefaultCheckRecord, Code: lb.DefaultCheckCode}
	}
	return c.DNS
}

func udpOf(c *lb.Check) *lb.UDPCheck {
	if c.UDP == nil {
		c.UDP = &lb.UDPCheck{}
	}
	return c.UDP
}

func grpcOf(c *lb.Check) *lb.GRPCCheck {
	if c.GRPC == nil {
		c.GRPC = &lb.GRPCCheck{}
	}
	return c.GRPC
}

func execOf(c *lb.Check) *lb.ExecCheck {
	if c.Exec == nil {
		c.Exec = &lb.ExecCheck{}
	}
	return c.Exec
}

// writesTLS reports whether a check has settings of TLS beyond its type.
func writesTLS(c *lb.Check) bool {
	return c.TLS != nil && (c.Type != lb.CheckTLS || *c.TLS != lb.TLSCheck{})
}

// typesOf are the types that have a key; all have those that are not here.
var typesOf = map[string][]lb.CheckType{
	"via": {lb.CheckTCP, lb.CheckTLS, lb.CheckHTTP, lb.CheckDNS, lb.CheckUDP, lb.CheckICMP, lb.CheckGRPC,
		lb.CheckAgent},
	"port": {lb.CheckTCP, lb.CheckTLS, lb.CheckHTTP, lb.CheckDNS, lb.CheckUDP, lb.CheckGRPC, lb.CheckExec,
		lb.CheckAgent},
	"source": {lb.CheckTCP, lb.CheckTLS, lb.CheckHTTP, lb.CheckDNS, lb.CheckUDP, lb.CheckICMP, lb.CheckGRPC,
		lb.CheckAgent},
	"method":        {lb.CheckHTTP},
	"path":          {lb.CheckHTTP},
	"host":          {lb.CheckHTTP},
	"headers":       {lb.CheckHTTP},
	"status":        {lb.CheckHTTP},
	"body":          {lb.CheckHTTP},
	"http2":         {lb.CheckHTTP},
	"weight_header": {lb.CheckHTTP},
	"tls":           {lb.CheckTLS, lb.CheckHTTP, lb.CheckGRPC},
	"name":          {lb.CheckDNS},
	"record":        {lb.CheckDNS},
	"code":          {lb.CheckDNS},
	"answer":        {lb.CheckDNS},
	"tcp":           {lb.CheckDNS},
	"send":          {lb.CheckUDP},
	"expect":        {lb.CheckUDP},
	"service":       {lb.CheckGRPC},
	"command":       {lb.CheckExec},
}

// CheckField returns the path of check k of service i (both from 0), as the file spells it.
func (c *Config) CheckField(i, k int) string {
	if field := ServiceField(i, "check"); c.file.Written(field) {
		return field
	}
	return yamlfile.Element(ServiceField(i, "checks"), k)
}

// checkChecks checks the health checks of a service.
func (p *parser) checkChecks(i int) {
	s := &p.cfg.Services[i]
	if field := ServiceField(i, "check"); p.Written(field) && p.Written(ServiceField(i, "checks")) {
		p.Fail(field, "written beside checks; write one check here, or all of them there")
		return
	}
	p.checkOutliers(i)
	if field := ServiceField(i, "require"); p.Written(field) && len(s.Checks.List) < 2 &&
		!p.Bad(ServiceField(i, "checks")) {
		p.Fail(field, "there are no two checks to require all or any of; add another under checks, or remove the line")
	}
	switch field := ServiceField(i, "panic"); {
	case !p.Written(field):
		if s.IsMonitored() {
			s.Checks.Panic = lb.DefaultPanicFor(s.OnEmpty)
		}
	case !s.IsMonitored() && !p.Bad(ServiceField(i, "checks")) && !p.Bad(ServiceField(i, "outliers")):
		p.Fail(field,
			"says what to do when backends are not healthy, and no check says whether they are; add check, or remove the line")
	}
	if field := ServiceField(i, "panic"); s.OnEmpty == lb.WithdrawVIP && s.Checks.Panic > 0 && !p.Bad(field) {
		p.Fail(field,
			"uses all backends where none is healthy, and on_empty withdraws the VIP then; write 0%%, or remove one of the lines")
	}
	p.checkOnDown(i)
	p.checkSlowStart(i)
	for k := range s.Checks.List {
		p.checkCheck(i, k)
	}
	p.checkBackups(i)
}

// checkOnDown checks the policy for flows of a failing backend. The connections of an ejected backend always go on, so
// that without a check the key has no effect on TCP.
func (p *parser) checkOnDown(i int) {
	s, field := &p.cfg.Services[i], ServiceField(i, "on_down")
	switch {
	case p.Bad(field) || p.Bad(ServiceField(i, "protocol")):
	case !p.Written(field):
		if s.IsMonitored() {
			s.Checks.OnDown = lb.DefaultOnDown(s.Protocol)
		}
	case !s.Checks.On() && (s.Protocol == lb.TCP || !s.Outliers.On()):
		if !p.Bad(ServiceField(i, "checks")) && !p.Bad(ServiceField(i, "check")) {
			p.Fail(field,
				"is the policy for flows of a backend whose checks fail, and there is no check; add check, or remove the line")
		}
	case s.Protocol == lb.TCP && s.Checks.OnDown == lb.MoveFlows:
		p.Fail(field,
			"a connection cannot be moved: another backend does not know it, and would reset it; write %s, which does that at once, or %s", lb.ResetFlows, lb.KeepFlows)
	case s.Protocol == lb.UDP && s.Checks.OnDown == lb.ResetFlows:
		p.Fail(field, "UDP has no connections to reset; write %s or %s", lb.MoveFlows, lb.KeepFlows)
	}
}

// The shortest slow start has steps as short as changes that come together can be, and the longest
// is that of an interval of checks.
const (
	minSlowStart = time.Second
	maxSlowStart = time.Hour
)

// checkSlowStart refuses a slow start with schedulers that have no shares.
func (p *parser) checkSlowStart(i int) {
	s, field := p.cfg.Services[i], ServiceField(i, "slow_start")
	if s.SlowStart == 0 || p.Bad(field) || p.Bad(ServiceField(i, "scheduler")) || s.Scheduler.Weighted() {
		return
	}
	p.Fail(field,
		"a share that grows is a weight, and the scheduler %s heeds none; write another scheduler, such as %s, or remove the line", s.Scheduler,
		map[lb.Scheduler]lb.Scheduler{lb.RoundRobin: lb.WeightedRoundRobin,
			lb.LeastConnections: lb.WeightedLeastConnections, lb.Failover: lb.Maglev}[s.Scheduler])
}

// checkCheck looks at check k of service i, and drops the parts that its type does not have.
func (p *parser) checkCheck(i, k int) {
	s := p.cfg.Services[i]
	c, field := &s.Checks.List[k], p.cfg.CheckField(i, k)
	if c.Type == "" { // reported before
		*c = lb.Check{}
		return
	}
	p.checkOwnKeys(*c, field)
	withTLS := c.Type == lb.CheckTLS || p.Written(yamlfile.Join(field, "tls"))
	dropOtherParts(c, withTLS)
	p.checkTimes(c, field)
	p.checkVia(s, *c, field)
	p.checkContent(*c, field)
}

// checkOwnKeys refuses keys of other types.
func (p *parser) checkOwnKeys(c lb.Check, field string) {
	for _, key := range checkKeys {
		types, some := typesOf[key.Name]
		if at := yamlfile.Join(field, key.Name); some && !slices.Contains(types, c.Type) && p.Written(at) {
			p.Fail(at, "a check of type %s has no %s (%s); remove the line", c.Type, key.Name, typesText(types))
		}
	}
}

// typesText lists the types that have a key.
func typesText(types []lb.CheckType) string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = string(t)
	}
	return strings.Join(words, ", ") + " do"
}

// dropOtherParts drops the parts that a check of this type does not have, and gives it those that it
// has.
func dropOtherParts(c *lb.Check, withTLS bool) {
	all := *c
	c.HTTP, c.TLS, c.DNS, c.UDP, c.GRPC, c.Exec = nil, nil, nil, nil, nil, nil
	switch c.Type {
	case lb.CheckHTTP:
		c.HTTP = httpOf(&all)
	case lb.CheckDNS:
		c.DNS = dnsOf(&all)
	case lb.CheckUDP:
		c.UDP = udpOf(&all)
	case lb.CheckGRPC:
		c.GRPC = grpcOf(&all)
	case lb.CheckExec:
		c.Exec = execOf(&all)
	}
	if withTLS {
		c.TLS = tlsOf(&all)
	}
}

// defaultTimeout is the timeout of a check that has none in the file.
func defaultTimeout(c lb.Check) time.Duration {
	timeout := min(lb.DefaultCheckTimeout, c.Interval)
	if c.Fast > 0 {
		timeout = min(timeout, c.Fast)
	}
	return timeout
}

// checkTimes sets the defaults of times, and refuses checks that would overtake each other.
func (p *parser) checkTimes(c *lb.Check, field string) {
	at := func(name string) string { return yamlfile.Join(field, name) }
	if p.Bad(at("interval")) || p.Bad(at("fast")) || p.Bad(at("timeout")) {
		return
	}
	if !p.Written(at("timeout")) {
		c.Timeout = defaultTimeout(*c)
	}
	switch {
	case c.Fast > c.Interval:
		p.Fail(at("fast"), "%s is longer than interval, %s; write a shorter time, or remove the line", c.Fast,
			c.Interval)
	case c.Timeout > c.Interval:
		p.Fail(at("timeout"),
			"%s is longer than interval, %s: the next check would begin before this one has its answer; lower it, or raise interval", c.Timeout, c.Interval)
	case c.Fast > 0 && c.Timeout > c.Fast:
		p.Fail(at("timeout"),
			"%s is longer than fast, %s: the next check would begin before this one has its answer; lower it, or raise fast", c.Timeout, c.Fast)
	}
}

// checkVia refuses checks by the VIP or by the address that cannot work in the service's mode.
func (p *parser) checkVia(s lb.Service, c lb.Check, field string) {
	at := func(name string) string { return yamlfile.Join(field, name) }
	via := c.ViaIn(s.Mode)
	if via == lb.ViaVIP && !s.Mode.KeepsPort() {
		p.Fail(at("via"),
			"in the mode %s the backends do not have the VIP, and what is sent to it reaches them under their own addresses; remove the line", s.Mode)
		return
	}
	if c.Type == lb.CheckICMP && via == lb.ViaVIP && s.Mode.Marks() {
		p.Fail(at("via"), "the mode %s takes TCP and UDP to the VIP, and no ICMP; write via: %s, or another type",
			s.Mode, lb.ViaAddress)
	}
	if c.Source.IsValid() && via == lb.ViaVIP {
		p.Fail(at("source"),
			"a check via the VIP is sent from an address that leads its answer back; remove the line, or write via: %s",
			lb.ViaAddress)
	}
	for _, b := range s.Backends {
		if c.Source.IsValid() && b.Address.IsValid() && b.Address.Is4() != c.Source.Is4() {
			p.Fail(at("source"), "%s is %s, and %s is %s (%s); remove the line, or split the service by family",
				c.Source, family(c.Source), b.Name, family(b.Address), b.Address)
			break
		}
	}
	p.checkPort(s, c, field)
}

// checkPort refuses checks of a port that no backend has.
func (p *parser) checkPort(s lb.Service, c lb.Check, field string) {
	at := yamlfile.Join(field, "port")
	switch {
	case c.Port != 0 || p.Bad(at) || c.Type == lb.CheckICMP || c.Type == lb.CheckExec:
	case c.Type == lb.CheckAgent:
		p.Fail(at, "missing; write the port on which the backends' agents answer")
	case s.Protocol == lb.UDP && !c.Datagram():
		p.Fail(at, "missing: the service is UDP, and no backend need listen on its port over TCP, as this check asks; write the port that they listen on")
	case s.Protocol == lb.TCP && c.Datagram():
		p.Fail(at, "missing: the service is TCP, and no backend need listen on its port over UDP, as this check asks; write the port that they listen on")
	}
}

// checkContent checks the request of a check and the answer that it expects.
func (p *parser) checkContent(c lb.Check, field string) {
	at := func(name string) string { return yamlfile.Join(field, name) }
	switch {
	case c.HTTP != nil && c.HTTP.Method == "HEAD" && c.HTTP.Body != "":
		p.Fail(at("body"), "the response to HEAD has no body; write method: GET, or remove the line")
	case c.DNS != nil && c.DNS.Name == "" && !p.Bad(at("name")):
		p.Fail(at("name"), "missing; write the name that is asked for")
	case c.DNS != nil && c.DNS.Answer != "" && c.DNS.Code != lb.DefaultCheckCode:
		p.Fail(at("answer"), "a response with the code %s has no answer; remove one of the lines", c.DNS.Code)
	case c.Exec != nil && !p.Written(at("command")):
		p.Fail(at("command"), "missing; write the program, by its absolute path, and its arguments")
	case c.Exec != nil && len(c.Exec.Command) > 0 && !p.Bad(yamlfile.Element(at("command"), 0)) &&
		!filepath.IsAbs(c.Exec.Command[0]):
		p.Fail(yamlfile.Element(at("command"), 0),
			"%s is not the absolute path of a program; write one such as /usr/local/bin/check",
			yamlfile.Quote(c.Exec.Command[0]))
	}
	if c.TLS != nil && c.TLS.CA != "" && !c.TLS.Verify {
		p.Fail(at("tls.ca"), "nothing is verified against it; write verify: true, or remove the line")
	}
}

// checkBackups refuses backups without effect.
func (p *parser) checkBackups(i int) {
	s := p.cfg.Services[i]
	backups := 0
	for j, b := range s.Backends {
		if !b.Backup {
			continue
		}
		backups++
		if s.Scheduler.InOrder() {
			p.Fail(BackendField(i, j, "backup"),
				"the scheduler %s has each backend wait for those before it; remove the line, and write the backends in the order in which they shall serve", s.Scheduler)
			return
		}
	}
	if backups > 0 && backups == len(s.Backends) && !s.MayBeEmpty() {
		p.Fail(ServiceField(i, "backends"),
			"all are backups, and there is no backend to take the place of; remove backup from one")
	}
}
