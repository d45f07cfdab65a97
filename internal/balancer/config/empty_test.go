// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// TestAllowEmpty: a service that may be empty is taken without backends and with drained ones only, and is written so
// that it is read again; a file may leave all services to other sources.
func TestAllowEmpty(t *testing.T) {
	for name, service := range map[string]string{
		"no backends": "{name: web, vip: 192.0.2.100, port: 80, allow_empty: true, backends: []}",
		"all drained": "{name: web, vip: 192.0.2.100, port: 80, allow_empty: true, backends: [{name: a, address: 192.0.2.1, drain: true}]}",
		"weight 0":    "{name: web, vip: 192.0.2.100, port: 80, allow_empty: true, backends: [{name: a, address: 192.0.2.1, weight: 0}]}",
		"no service":  "",
	} {
		t.Run(name, func(t *testing.T) {
			first, err := Parse("f", []byte("interface: eth0\nservices: ["+service+"]\n"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := Write(first)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("written", text)
			if err != nil {
				t.Fatalf("what is written cannot be read: %v\n%s", err, text)
			}
			if service != "" && (len(again.Services) != 1 || !again.Services[0].AllowEmpty) {
				t.Errorf("read again it is %+v, of\n%s", again.Services, text)
			}
		})
	}
	_, err := Merge(Source{"f", []byte("interface: eth0\nservices: []\n")},
		Source{"kubernetes", []byte("services: [{name: web, vip: 192.0.2.100, port: 80, backends: []}]")})
	if err == nil || !strings.Contains(err.Error(), "services[0].backends: empty; add at least one backend") {
		t.Errorf("a service without backends and allow_empty: %v", err)
	}
}
