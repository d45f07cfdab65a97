// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestMembersProblems(t *testing.T) {
	const services = "interface: eth0\nservices:\n  - {name: web, vip: 192.0.2.100, port: 80, backends: [{name: a, address: 192.0.2.21}]}\n"
	for _, test := range []struct{ members, says string }{
		{"listen: 192.0.2.10:7946, peers: [192.0.2.10, 192.0.2.11], key_file: /k", ""},
		{"listen: '[2001:db8::1]:7946', peers: ['2001:db8::2'], key_file: /k, name: lb-1.example", ""},
		{"listen: 192.0.2.10, peers: [192.0.2.11], key_file: /k",
			"members.listen: \"192.0.2.10\" is not an IP address and a port"},
		{"listen: 0.0.0.0:7946, peers: [192.0.2.11], key_file: /k", "members.listen: 0.0.0.0 is every address"},
		{"listen: 192.0.2.100:7946, peers: [192.0.2.11], key_file: /k", "members.listen: 192.0.2.100 is the VIP"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.10], key_file: /k", "names no other balancer than this one"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.100], key_file: /k", "members.peers[0]: 192.0.2.100 is the VIP"},
		{"listen: 192.0.2.10:7946, peers: [lb2], key_file: /k", "members.peers[0]"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11]", "members.key_file"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11], key_file: k", "members.key_file"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11], key_file: /k, name: 'a b'", "members.name: \"a b\" is no name"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11], key_file: /k, flows_port: 7000", ""},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11], key_file: /k, hand_over: false", ""},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11], key_file: /k, flows_port: 7946",
			"members.flows_port: 7946 is the port of listen"},
		{"listen: 192.0.2.10:65535, peers: [192.0.2.11], key_file: /k", "members.flows_port: there is no port after"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11], key_file: /k, hand_over: false, flows_port: 7000",
			"members.flows_port: no flows are handed over"},
		{"listen: 192.0.2.10:7946, peers: [192.0.2.11], key_file: /k, key: x", "members.key"},
	} {
		_, err := Parse("f", []byte("members: {"+test.members+"}\n"+services))
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: the error is %v, and should say %q", test.members, err, test.says)
		}
	}
}
