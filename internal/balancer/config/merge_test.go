// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mergedFile = `interface: eth0
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    backends:
      - {name: web01, address: 192.0.2.1}
`

func fragmentOf(name, service, vip string) Source {
	return Source{name, []byte("# of a program\nservices:\n  - name: " + service + "\n    vip: " + vip +
		"\n    port: 80\n    backends:\n      - {name: b1, address: 192.0.2.1}\n")}
}

// TestMerge: services of all sources stand together, and each has one owner.
func TestMerge(t *testing.T) {
	cfg, err := Merge(Source{"f", []byte(mergedFile)}, fragmentOf("api", "shop", "192.0.2.101"),
		Source{"empty", []byte("# nothing\n")}, fragmentOf("kube", "mail", "192.0.2.102"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, s := range cfg.Services {
		got = append(got, s.Name+" of "+cfg.Owner(i))
	}
	if diff := cmp.Diff([]string{"web of file", "shop of api", "mail of kube"}, got); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	for owner, want := range map[string]string{"kube": "mail", "api": "shop", FileOwner: "web"} {
		text, err := WriteFragment(cfg, owner)
		if err != nil || !strings.Contains(string(text), "name: "+want) || strings.Count(string(text), "vip:") != 1 {
			t.Errorf("%s has %q, %v", owner, text, err)
		}
	}
	if text, err := WriteFragment(cfg, "empty"); len(text) > 0 || err != nil {
		t.Errorf("a source without services has %q, %v", text, err)
	}
	if at := cfg.At(ServiceField(2, "vip"), "x").String(); at != "kube:4: services[0].vip: x" {
		t.Errorf("a place in a fragment is %q", at)
	}
}

// TestMergeRefuses: a problem names its source and, where two sources are at odds, both.
func TestMergeRefuses(t *testing.T) {
	tests := map[string]struct {
		fragments []Source
		want      string
	}{
		"service": {[]Source{fragmentOf("api", "web", "192.0.2.101")},
			"api:3: services[0].name: web is already the name of services[0].name (f, line 3); give each service its own"},
		"address": {[]Source{fragmentOf("api", "a", "192.0.2.101"), fragmentOf("kube", "b", "192.0.2.101")},
			"kube:4: services[0].vip: tcp 192.0.2.101:80 is already taken by services[0].vip (api, line 4); join the two services or change the vip, port or protocol"},
		"key": {[]Source{{"api", []byte("hook: tc\n" + string(fragmentOf("", "a", "192.0.2.101").Data))}},
			"api:1: hook: is the configuration file's to say; here stand services only: remove it"},
		"value": {[]Source{fragmentOf("api", "a", "x")}, `api:4: services[0].vip: "x" is not an IP address`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Merge(Source{"f", []byte(mergedFile)}, test.fragments...)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error:\n%v\nwant:\n%s", err, test.want)
			}
		})
	}
}

// TestWriteFragment: the services of a source, with every key, are read again as they were.
func TestWriteFragment(t *testing.T) {
	text, err := os.ReadFile(everyKey)
	if err != nil {
		t.Fatal(err)
	}
	head, services, _ := strings.Cut(string(text), "services:\n")
	file := Source{"f",
		[]byte(head +
			"services:\n  - name: other\n    vip: 192.0.2.200\n    port: 80\n    backends:\n      - {name: o1, address: 192.0.2.222}\n")}
	before, err := Merge(file, Source{"api", []byte("services:\n" + services)})
	if err != nil {
		t.Fatal(err)
	}
	written, err := WriteFragment(before, "api")
	if err != nil {
		t.Fatal(err)
	}
	after, err := Merge(file, Source{"api", written})
	if err != nil {
		t.Fatalf("%v\nof:\n%s", err, written)
	}
	if diff := cmp.Diff(before.Services, after.Services, compare); diff != "" {
		t.Errorf("written and read again (-before +after):\n%s", diff)
	}
	if again, err := WriteFragment(after, "api"); err != nil || string(again) != string(written) {
		t.Errorf("written again it is another text (%v):\n%s\nbefore:\n%s", err, again, written)
	}
}

func TestFragmentNames(t *testing.T) {
	for name, good := range map[string]bool{"api": true, "kube-1": true, "": false, FileOwner: false, "-a": false,
		"../a": false, "A": false, strings.Repeat("a", 64): false, "a\n": false} {
		if err := CheckFragmentName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
