// SPDX-License-Identifier: Apache-2.0

package master_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
)

const processes = `#<PID>          <type>          <reloads>       <uptime>        <version>
1162            master          5 [failed: 1]   0d00h02m07s     2.6.12-1+deb12u4
# workers
1271            worker          1               0d00h00m00s     2.6.12-1+deb12u4
# old workers
1233            worker          3               0d00h00m43s     2.6.12-1+deb12u4
# programs
1244            foo             0               0d00h00m00s     -

`

// processes32 is an answer of HAProxy 3.2 after a reload that failed: the worker that serves on is among the old ones.
const processes32 = `#<PID>          <type>          <reloads>       <uptime>        <version>
1162            master          2 [failed: 1]   0d00h02m07s     3.2.4-1
# workers
# old workers
1233            worker          2               0d00h00m43s     3.2.4-1
1271            worker          1               0d00h01m00s     3.2.4-1
1201            worker          3               0d00h01m43s     3.2.4-1
# programs

`

func TestParseProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer string
		want   master.Processes
	}{
		{processes, master.Processes{Master: 1162, Reloads: 5, Failed: 1, Workers: []int{1271}, Old: []int{1233}}},
		{processes32, master.Processes{Master: 1162, Reloads: 2, Failed: 1, Workers: []int{1271},
			Old: []int{1233, 1201}}},
	} {
		got, err := master.ParseProcesses(c.answer)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v (- want, + got):\n%s", err, diff)
		}
	}
	for _, bad := range []string{"", "# workers\n1 worker 1", "x master 1", "1 master x", "-1 master 1",
		"1 master 1\n# old workers\n2 worker x"} {
		if _, err := master.ParseProcesses(bad); !errors.Is(err, master.ErrAnswer) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

const statistics = "# pxname,svname,qcur,scur,conn_tot,desc,\n" +
	"a.clients,FRONTEND,,2,7,\"with, a comma\",\na.all,10.0.0.1_80,1,0,,,\n\n"

func TestParseStatistics(t *testing.T) {
	t.Parallel()
	got, err := master.ParseStatistics(statistics)
	want := master.Statistics{
		{Section: "a.clients", Server: "FRONTEND"}: {"scur": 2, "conn_tot": 7},
		{Section: "a.all", Server: "10.0.0.1_80"}:  {"qcur": 1, "scur": 0},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (- want, + got):\n%s", err, diff)
	}
	for _, bad := range []string{"", "Unknown command", "# ", "# svname,pxname\n"} {
		if _, err := master.ParseStatistics(bad); !errors.Is(err, master.ErrAnswer) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParseProcesses(f *testing.F) {
	f.Add(processes)
	f.Fuzz(func(t *testing.T, answer string) {
		p, err := master.ParseProcesses(answer)
		if (err == nil) != (p.Master > 0) {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

func FuzzParseStatistics(f *testing.F) {
	f.Add(statistics)
	f.Fuzz(func(t *testing.T, answer string) {
		if all, err := master.ParseStatistics(answer); (all == nil) != (err != nil) {
			t.Errorf("%v, %v", all, err)
		}
	})
}

func FuzzParseInfo(f *testing.F) {
	f.Add("Name: HAProxy\nPid: 29967\nJobs: 2\nUnstoppable Jobs: 1\nStopping: 1\nnode: a: 3\n\n")
	f.Fuzz(func(t *testing.T, answer string) {
		numbers := master.ParseInfo(answer)
		if strings.Contains(answer, "\nPid: 7\n") && strings.Count(answer, "Pid: ") == 1 && numbers["Pid"] != 7 {
			t.Errorf("%q: %v", answer, numbers)
		}
	})
}

const table = "# table: 192.0.2.1_80.all, type: ip, size:1048576, used:2\n" +
	"0x563c580ac680: key=127.0.0.1 use=0 exp=3599603 server_id=7 server_key=a_1\n0x563c580ac681: key=2001:db8::1 use=0 exp=1\n\n"

func TestParseTable(t *testing.T) {
	t.Parallel()
	got, err := master.ParseTable(table)
	if want := netip.MustParseAddr("127.0.0.1"); err != nil || len(got) != 1 || got[want] != 7 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := master.ParseTable("No such table"); !errors.Is(err, master.ErrAnswer) {
		t.Errorf("%v", err)
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add(table)
	f.Fuzz(func(t *testing.T, answer string) {
		all, err := master.ParseTable(answer)
		for client, server := range all {
			if err != nil || !client.IsValid() || server == 0 {
				t.Errorf("%v at %d, %v", client, server, err)
			}
		}
	})
}
