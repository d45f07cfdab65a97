// SPDX-License-Identifier: Apache-2.0

package loxilb

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjecttest"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

func TestLoxiLBRules(t *testing.T) {
	text, err := json.Marshal(loxilbRules(subjecttest.ChangedPaper()))
	if err != nil {
		t.Fatal(err)
	}
	endpoints := `"endpoints":[{"endpointIP":"198.18.2.1","targetPort":80,"weight":0},{"endpointIP":"198.18.2.2","targetPort":80,"weight":3}]}`
	want := `[{"serviceArguments":{"externalIP":"198.18.0.100","port":80,"protocol":"tcp","sel":0,"mode":0},` +
		endpoints +
		`,{"serviceArguments":{"externalIP":"198.18.0.100","port":80,"protocol":"udp","sel":0,"mode":0},` +
		endpoints + "]"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClearLoxiLB leaves on a balancer everything that LoxiLB may leave, as far as that is possible without LoxiLB.
func TestClearLoxiLB(t *testing.T) {
	testenv.Root(t)
	l, err := lab.New(t.Context(), lab.Spec{Clients: 1, Servers: 1, Dir: filepath.Join(t.TempDir(), "lab")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	state := func() (names []string) {
		err := l.Balancer.Do(func() error {
			links, err := netdump.Links()
			if err != nil {
				return err
			}
			for _, link := range links {
				qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) {
					return netlink.QdiscList(link)
				})
				if err != nil {
					return err
				}
				names = append(names, link.Attrs().Name)
				for _, qdisc := range qdiscs {
					names = append(names, qdisc.Type())
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := state()
	err = l.Balancer.Do(func() error {
		link, err := netlink.LinkByName(l.Balancer.Interface)
		if err != nil {
			return err
		}
		own := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "llb0peer"}
		own.Name = loxilbDevice
		return errors.Join(netlink.LinkAdd(own), netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(state(), before) {
		t.Fatal("nothing was put there")
	}
	if err := clearLoxiLB(l.Balancer, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
