// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// checked is a file with a service of these lines.
func checked(lines ...string) string {
	return "interface: eth0\nservices:\n  - name: web\n    vip: 192.0.2.100\n    port: 80\n    " +
		strings.Join(lines, "\n    ") +
		"\n    backends:\n      - {name: a, address: 192.0.2.1}\n      - {name: b, address: 192.0.2.2}\n"
}

func TestCheck(t *testing.T) {
	usual := lb.Check{Type: lb.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
	with := func(change func(*lb.Check)) lb.Checks {
		c := usual
		change(&c)
		return lb.Checks{List: []lb.Check{c}, Panic: lb.DefaultPanic, OnDown: lb.KeepFlows}
	}
	for line, want := range map[string]lb.Checks{
		"check: tcp":         with(func(*lb.Check) {}),
		"check: {type: tcp}": with(func(*lb.Check) {}),
		"check: icmp":        with(func(c *lb.Check) { c.Type = lb.CheckICMP }),
		"check: tls":         with(func(c *lb.Check) { c.Type, c.TLS = lb.CheckTLS, &lb.TLSCheck{} }),
		"check: http": with(func(c *lb.Check) {
			c.Type, c.HTTP = lb.CheckHTTP, &lb.HTTPCheck{Method: "GET", Path: "/"}
		}),
		"check: {type: http, status: 200, tls: {verify: false}}": with(func(c *lb.Check) {
			c.Type, c.TLS = lb.CheckHTTP, &lb.TLSCheck{}
			c.HTTP = &lb.HTTPCheck{Method: "GET", Path: "/", Status: []lb.StatusRange{{First: 200, Last: 200}}}
		}),
		"protocol: udp\n    check: icmp": {List: with(func(c *lb.Check) { c.Type = lb.CheckICMP }).List,
			Panic: lb.DefaultPanic, OnDown: lb.MoveFlows},
		"check: tcp\n    on_down: reset": {List: []lb.Check{usual}, Panic: lb.DefaultPanic, OnDown: lb.ResetFlows},
		"check: {type: tcp, interval: 500ms}": with(func(c *lb.Check) {
			c.Interval, c.Timeout = 500*time.Millisecond, 500*time.Millisecond
		}),
		"check: {type: tcp, interval: 5s, fast: 300ms}": with(func(c *lb.Check) {
			c.Interval, c.Fast, c.Timeout = 5*time.Second, 300*time.Millisecond, 300*time.Millisecond
		}),
		"check: {type: grpc, service: a.B, jitter: 50%}": with(func(c *lb.Check) {
			c.Type, c.GRPC, c.Jitter = lb.CheckGRPC, &lb.GRPCCheck{Service: "a.B"}, 50
		}),
		"checks: [tcp, icmp]\n    require: any\n    panic: 0%": {Any: true, OnDown: lb.KeepFlows,
			List: []lb.Check{usual, with(func(c *lb.Check) { c.Type = lb.CheckICMP }).List[0]}},
	} {
		cfg, err := Parse("f", []byte(checked(line)))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if diff := cmp.Diff(want, cfg.Services[0].Checks, compare); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
		checkRoundTrip(t, cfg)
	}
}

// TestCheckRefused: a check that cannot be is refused with its line and field, and with the remedy.
func TestCheckRefused(t *testing.T) {
	for lines, want := range map[string]string{
		"check: ping":                         `f:6: services[0].check.type: unknown check "ping": use one of tcp, tls,`,
		"check: ~":                            "f:6: services[0].check: has no value",
		"check: {interval: 1s}":               "f:6: services[0].check.type: missing; add it",
		"check: tcp\n    checks: [tcp, icmp]": "f:6: services[0].check: written beside checks",
		"checks: []":                          "f:6: services[0].checks: empty; name a check",
		"checks: [tcp, tcp, tcp, tcp, tcp, tcp, tcp, tcp, tcp]":               "f:6: services[0].checks: 9 are more than the 8",
		"check: tcp\n    require: any":                                        "f:7: services[0].require: there are no two checks",
		"require: all":                                                        "f:6: services[0].require: there are no two checks",
		"checks: [tcp, icmp]\n    require: some":                              `f:7: services[0].require: unknown word "some": use one of all, any`,
		"panic: 50%":                                                          "f:6: services[0].panic: says what to do when backends are not healthy",
		"check: tcp\n    panic: 50":                                           `f:7: services[0].panic: "50" is not a share in per cent`,
		"check: tcp\n    panic: 101%":                                         `f:7: services[0].panic: "101%" is not a share`,
		"scheduler: rr\n    slow_start: 10s":                                  "f:7: services[0].slow_start: a share that grows is a weight, and the scheduler rr heeds none; write another scheduler, such as wrr",
		"slow_start: 10ms":                                                    "not from 1s to 1h",
		"on_empty: drop":                                                      `f:6: services[0].on_empty: unknown fate of a VIP "drop": use keep or withdraw`,
		"check: tcp\n    on_empty: withdraw\n    panic: 50%":                  "f:8: services[0].panic: uses all backends where none is healthy",
		"on_down: keep":                                                       "f:6: services[0].on_down: is the policy for flows",
		"check: tcp\n    on_down: move":                                       "f:7: services[0].on_down: a connection cannot be moved",
		"check: tcp\n    on_down: drop":                                       `f:7: services[0].on_down: unknown fate of flows "drop": use keep, reset or move`,
		"protocol: udp\n    check: icmp\n    on_down: reset":                  "f:8: services[0].on_down: UDP has no connections to reset",
		"check: {type: tcp, interval: 2}":                                     `f:6: services[0].check.interval: "2" has no unit`,
		"check: {type: tcp, interval: 50ms}":                                  "not from 100ms to 1h",
		"check: {type: tcp, timeout: 3s}":                                     "f:6: services[0].check.timeout: 3s is longer than interval, 2s",
		"check: {type: tcp, fast: 3s}":                                        "f:6: services[0].check.fast: 3s is longer than interval, 2s",
		"check: {type: tcp, fast: 1s, timeout: 2s}":                           "f:6: services[0].check.timeout: 2s is longer than fast, 1s",
		"check: {type: tcp, rise: 0}":                                         "f:6: services[0].check.rise:",
		"check: {type: tcp, jitter: 51%}":                                     "f:6: services[0].check.jitter:",
		"check: {type: tcp, path: /}":                                         "f:6: services[0].check.path: a check of type tcp has no path (http do); remove the line",
		"check: {type: icmp, port: 7}":                                        "f:6: services[0].check.port: a check of type icmp has no port",
		"check: {type: exec, via: vip, command: [/bin/true]}":                 "f:6: services[0].check.via: a check of type exec has no via",
		"mode: nat\n    check: {type: tcp, via: vip}":                         "f:7: services[0].check.via: in the mode nat the backends do not have the VIP",
		"mode: dscp\n    check: icmp":                                         "f:7: services[0].check.via: the mode dscp takes TCP and UDP to the VIP, and no ICMP",
		"check: {type: tcp, source: 192.0.2.9}":                               "f:6: services[0].check.source: a check via the VIP is sent from",
		"mode: nat\n    check: {type: tcp, source: '2001:db8::9'}":            "f:7: services[0].check.source: 2001:db8::9 is IPv6, and a is IPv4",
		"protocol: udp\n    check: tcp":                                       "f:7: services[0].check.port: missing: the service is UDP",
		"check: {type: dns, name: a.b}":                                       "f:6: services[0].check.port: missing: the service is TCP",
		"check: {type: udp, send: x}":                                         "f:6: services[0].check.port: missing: the service is TCP",
		"check: agent":                                                        "f:6: services[0].check.port: missing; write the port on which the backends' agents answer",
		"check: {type: dns, tcp: true}":                                       "f:6: services[0].check.name: missing; write the name",
		"check: {type: dns, tcp: true, name: a.b, code: NXDOMAIN, answer: x}": "f:6: services[0].check.answer: a response with the code NXDOMAIN has no answer",
		"check: exec":                                                         "f:6: services[0].check.command: missing; write the program",
		"check: {type: exec, command: [check]}":                               `f:6: services[0].check.command[0]: "check" is not the absolute path`,
		"check: {type: exec, command: []}":                                    "f:6: services[0].check.command: empty; name the program",
		"check: {type: http, method: get}":                                    `f:6: services[0].check.method: "get" is not a method`,
		"check: {type: http, path: healthz}":                                  `f:6: services[0].check.path: "healthz" is not a path`,
		"check: {type: http, status: 600}":                                    `f:6: services[0].check.status: "600" is not a status code`,
		"check: {type: http, status: 299-200}":                                `f:6: services[0].check.status: "299-200" is not a status code`,
		"check: {type: http, status: [200, 200]}":                             "f:6: services[0].check.status[1]: 200 is already",
		"check: {type: http, body: '(a'}":                                     "f:6: services[0].check.body: \"(a\" does not compile",
		"check: {type: http, method: HEAD, body: ok}":                         "f:6: services[0].check.body: the response to HEAD has no body",
		"check: {type: http, headers: ['Host: a']}":                           "f:6: services[0].check.headers[0]: the request's host is written under host",
		"check: {type: http, headers: ['te: a']}":                             "f:6: services[0].check.headers[0]: te is set by the check itself",
		"check: {type: http, weight_header: 'a b'}":                           `f:6: services[0].check.weight_header: "a b" cannot be the name of a header field`,
		"check: {type: tcp, weight_header: X-Weight}":                         "f:6: services[0].check.weight_header:",
		"check: {type: http, headers: ['a']}":                                 `f:6: services[0].check.headers[0]: "a" is not a header field`,
		`check: {type: http, headers: ["a: b\r\nc: d"]}`:                      "is not a header field",
		"check: {type: http, tls: {}}":                                        "f:6: services[0].check.tls.verify: missing; add it",
		"check: {type: tls, tls: {verify: false, ca: /a}}":                    "f:6: services[0].check.tls.ca: nothing is verified against it",
		"check: {type: tls, tls: {verify: true, ca: a}}":                      `f:6: services[0].check.tls.ca: "a" is not an absolute path`,
		`check: {type: udp, port: 9, send: '\q'}`:                             "f:6: services[0].check.send:",
	} {
		_, err := Parse("f", []byte(checked(lines)))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error\n%v\nwant one with\n%s", lines, err, want)
		}
	}
}

func TestBackups(t *testing.T) {
	backups := func(scheduler, a, b string) string {
		return "interface: eth0\nservices:\n  - name: web\n    vip: 192.0.2.100\n    port: 80\n    scheduler: " +
			scheduler +
			"\n    backends:\n      - {name: a, address: 192.0.2.1" + a + "}\n      - {name: b, address: 192.0.2.2" +
			b + "}\n"
	}
	for text, want := range map[string]string{
		backups("rr", "", ", backup: true"):               "",
		backups("rr", ", backup: true", ", backup: true"): "f:7: services[0].backends: all are backups",
		backups("fo", "", ", backup: true"):               "f:9: services[0].backends[1].backup: the scheduler fo",
	} {
		cfg, err := Parse("f", []byte(text))
		if want == "" {
			if err != nil || !cfg.Services[0].Backends[1].Backup {
				t.Errorf("%s: %v", text, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
