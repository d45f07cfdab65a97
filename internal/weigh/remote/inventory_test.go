// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const goodINI = `# A lab.
[clients]
client[01:02] ansible_user=bench   # two of them

[balancers]
lb:2222 ansible_host=192.0.2.1 jeoul_interface="eth 1" ansible_become=yes

[web]
web1 ansible_host=192.0.2.11 ansible_ssh_common_args='-o ProxyJump=jump -o "User=a b"'

[servers:children]
web

[servers:vars]
ansible_ssh_private_key_file = /root/key   # for all of them
colour = green

[all:vars]
jeoul_vip=192.0.2.100
jeoul_interface=eth0
`

const goodYAML = `all:
  vars: {jeoul_vip: 192.0.2.100, jeoul_interface: eth0}
  children:
    clients:
      hosts:
        client[01:02]: {ansible_user: bench}
    balancers:
      hosts:
        lb: {ansible_host: 192.0.2.1, ansible_port: 2222, jeoul_interface: eth 1, ansible_become: true}
    servers:
      vars: {ansible_ssh_private_key_file: /root/key, colours: [green]}
      children:
        web:
          hosts:
            web1:
              ansible_host: 192.0.2.11
              ansible_ssh_common_args: -o ProxyJump=jump -o "User=a b"
`

func TestParseInventory(t *testing.T) {
	want := &Inventory{
		Clients: []Host{
			{Name: "client01", Address: "client01", User: "bench", Interface: "eth0"},
			{Name: "client02", Address: "client02", User: "bench", Interface: "eth0"},
		},
		Balancers: []Host{{Name: "lb", Address: "192.0.2.1", Port: 2222, Interface: "eth 1", Become: true}},
		Servers: []Host{{Name: "web1", Address: "192.0.2.11", Key: "/root/key", Interface: "eth0",
			Options: []string{"-o", "ProxyJump=jump", "-o", "User=a b"}}},
		VIP: netip.MustParseAddr("192.0.2.100"),
	}
	for name, text := range map[string]string{"hosts.ini": goodINI, "hosts.yaml": goodYAML} {
		got, err := ParseInventory(name, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}),
			cmpopts.IgnoreFields(Inventory{}, "File"),
			cmpopts.IgnoreFields(Host{}, "Line")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.File != name || got.Servers[0].Line == 0 {
			t.Errorf("%s: file %q, %+v", name, got.File, got.Servers[0])
		}
	}
}

func TestParseInventoryNamesWhatIsWrong(t *testing.T) {
	// lab returns the inventory of a lab with the given balancer's line.
	lab := func(balancer string) string {
		return "[clients]\n192.0.2.2\n[servers]\n192.0.2.3\n[balancers]\n" + balancer +
			"\n[all:vars]\njeoul_vip=192.0.2.100\n"
	}
	for name, tc := range map[string]struct{ file, text, want string }{
		"empty group":     {"f", lab("# none"), "f:5: balancers: the group is empty"},
		"empty child":     {"f", lab("") + "[balancers:children]\nlbs\n[lbs]\n", "f:5: balancers: the group is empty"},
		"no group":        {"f", "[clients]\na\n", "f: servers: there is no such group"},
		"no child":        {"f", lab("a") + "[clients:children]\nnone\n", "f:10: clients: there is no group none"},
		"contains itself": {"f", lab("a") + "[x:children]\ny\n[y:children]\nx\n", "the group contains itself"},
		"both parts":      {"f", lab("192.0.2.3"), "f:4: 192.0.2.3: the host is in balancers and in servers"},
		"same machine": {"f", lab("lb ansible_host=192.0.2.3"),
			"is the same machine as lb on line 6 (192.0.2.3 port 22)"},
		"same address": {"f", lab("lb jeoul_address=192.0.2.3"), "has the same address as lb on line 6"},
		"no interface": {"f", lab("lb.example"),
			"f:6: lb.example: which interface belongs to the lab is not known"},
		"near variable": {"f", lab("192.0.2.1 ansble_user=x"),
			"f:6: 192.0.2.1.ansble_user: unknown variable; did you mean ansible_user?"},
		"unknown variable": {"f", lab("192.0.2.1 jeoul_colour=x"),
			"f:6: 192.0.2.1.jeoul_colour: unknown variable; the bench knows jeoul_interface"},
		"unknown ansible": {"f", lab("192.0.2.1 ansible_winrm_path=x"),
			"f:6: 192.0.2.1.ansible_winrm_path: unknown variable"},
		"password": {"f", lab("192.0.2.1 ansible_password=x"),
			"f:6: 192.0.2.1.ansible_password: the bench does not use passwords"},
		"connection": {"f", lab("192.0.2.1 ansible_connection=local"),
			`"local" is not possible; use ssh or smart or openssh`},
		"port": {"f", lab("192.0.2.1 ansible_port=70000"), `f:6: ansible_port: "70000" is no port`},
		"become": {"f", lab("192.0.2.1 ansible_become=maybe"),
			`f:6: ansible_become: "maybe" is neither true nor false`},
		"quotes":      {"f", lab("192.0.2.1 ansible_user='x"), "f:6: EOF found when expecting closing quote"},
		"no variable": {"f", lab("192.0.2.1 root"), `f:6: 192.0.2.1: "root" is no variable; write name=value`},
		"range":       {"f", lab("lb[5:1]"), `f:6: "lb[5:1]": 5 to 1 is no range`},
		"long range":  {"f", lab("lb[1:999][1:999]"), "stands for more than 1000 hosts"},
		"name":        {"f", lab("-oProxyCommand=x"), `f:6: "-oProxyCommand=x" is no name of a host`},
		"address": {"f", lab("lb ansible_host=-oProxyCommand=x jeoul_interface=eth0"),
			"is no place that ssh could go to"},
		"section": {"f", "[clients\na\n", `f:1: "[clients" is no section`},
		"kind of section": {"f", "[clients:hosts]\na\n",
			"f:1: clients: a section's lines are hosts, :children or :vars, not :hosts"},
		"no VIP": {"f", strings.TrimSuffix(lab("192.0.2.1"), "jeoul_vip=192.0.2.100\n"),
			"f: jeoul_vip: missing"},
		"two VIPs": {"f", lab("192.0.2.1 jeoul_vip=192.0.2.101"), "a lab has one"},
		"bad VIP":  {"f", lab("192.0.2.1 jeoul_vip=2001:db8::1"), `"2001:db8::1" is no IPv4 address`},
		"VIP taken": {"f", lab("192.0.2.1") + "jeoul_fullnat_address=192.0.2.3",
			"f:4: 192.0.2.3: has the address 192.0.2.3, which must be free"},
		"VIP twice": {"f", lab("192.0.2.1") + "jeoul_fullnat_address=192.0.2.100", "is the VIP already"},
		"two values": {"f", lab("192.0.2.1") + "[x]\n192.0.2.1 ansible_user=a\n[y]\n192.0.2.1 ansible_user=b\n",
			"f:12: ansible_user: 192.0.2.1 has another value on line 10"},
		"YAML":       {"f.yml", "all: [", "f.yml:1: did not find expected node content"},
		"YAML empty": {"f.yml", "", "f.yml: empty"},
		"YAML group": {"f.yml", "clients:\n  host: {a: }\n",
			"f.yml:2: clients: a group has hosts, vars and children, not host"},
		"YAML list": {"f.yml", "clients:\n  hosts: [a]\n", "f.yml:2: clients.hosts: not a mapping"},
		"YAML variable": {"f.yml", "clients:\n  vars:\n    jeoul_vip: [a]\n",
			"f.yml:3: clients.jeoul_vip: must be a single value"},
		"YAML alias": {"f.yml", "clients: &c\n  hosts: {a: }\nservers: *c\n",
			"f.yml:3: servers: aliases are not supported"},
		"YAML two": {"f.yml", "clients:\n---\nclients:\n", "a second YAML document follows"},
	} {
		_, err := ParseInventory(tc.file, []byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v\nwant %q", name, err, tc.want)
		}
	}
}

func FuzzParseInventory(f *testing.F) {
	f.Add(goodINI, false)
	f.Add(goodYAML, true)
	f.Add("[a:children]\na\n", false)
	f.Add("a[1:9][a:z]:22 x='", false)
	f.Add("a[1:9:9223372036854775807]\n[b:children]\nc\nc\n[c:children]\nd\nd\n[d]\na1\n", false)
	f.Fuzz(func(t *testing.T, text string, isYAML bool) {
		name := "f.ini"
		if isYAML {
			name = "f.yaml"
		}
		inventory, err := ParseInventory(name, []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), name) {
				t.Errorf("an error without the file: %v", err)
			}
			return
		}
		for _, hosts := range [][]Host{inventory.Clients, inventory.Balancers, inventory.Servers} {
			if len(hosts) == 0 {
				t.Fatal("an empty group was let through")
			}
			for _, h := range hosts {
				if h.Address == "" || h.Address[0] == '-' || h.Line == 0 || h.Interface == "" && !h.IPv4.IsValid() {
					t.Errorf("let through: %+v", h)
				}
			}
		}
		if !inventory.VIP.IsValid() {
			t.Error("no VIP")
		}
	})
}
