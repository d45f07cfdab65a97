// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// The labels of containers.
const (
	labelService = "jeoul.service"
	labelPort    = "jeoul.port"
	labelWeight  = "jeoul.weight"
)

const (
	// engineDebounce is the wait after an event, so that a burst of events causes one list.
	engineDebounce = 100 * time.Millisecond
	// relistInterval is the interval of lists without an event: a container's networks may change without one, and an
	// engine that hangs sends none.
	relistInterval = 30 * time.Second
	// engineTimeout bounds a list, and the answer to a request for events.
	engineTimeout = 10 * time.Second
	// engineMinBackoff is the pause before the first retry after a failure. Each later one is twice as long, up to
	// engineMaxBackoff.
	engineMinBackoff = 250 * time.Millisecond
	engineMaxBackoff = 30 * time.Second
	// maxList is room for ten thousand containers, of some 2 KiB each.
	maxList = 32 << 20
	// maxError bounds the bytes read of an engine's error.
	maxError = 1 << 10
)

// containers follows the containers of an engine with Docker's API.
type containers struct {
	socket, network string
	// four and six select the families of addresses.
	four, six bool
	client    *http.Client
}

// newContainers returns the provider that follows the containers for a service.
func newContainers(s lb.Service) containers {
	types := addressTypes(s)
	socket := s.Discovery.Docker.Socket
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return containers{socket: socket, network: s.Discovery.Docker.Network,
		four: slices.Contains(types, dns.TypeA), six: slices.Contains(types, dns.TypeAAAA),
		client: &http.Client{Transport: &http.Transport{DialContext: dial, ResponseHeaderTimeout: engineTimeout,
			MaxIdleConns: 1}}}
}

// Watch lists the containers whenever the engine reports an event.
func (c containers) Watch(ctx context.Context, notify func(Answer)) {
	defer c.client.CloseIdleConnections()
	retry := engineMinBackoff
	for ctx.Err() == nil {
		err := c.session(ctx, func(a Answer) {
			retry = engineMinBackoff
			notify(a)
		})
		if ctx.Err() != nil {
			return
		}
		notify(Answer{Err: err})
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, engineMaxBackoff)
	}
}

// session follows the engine until something fails. Events are subscribed to before the first list, so that changes
// between the two are noticed.
func (c containers) session(ctx context.Context, notify func(Answer)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// No filter by the label: Podman takes a label without a value for one with the empty value, and reports nothing.
	body, err := c.get(ctx, "/events", url.Values{"filters": {filters(map[string][]string{"type": {"container"}})}})
	if err != nil {
		return err
	}
	defer body.Close()
	events, ended := make(chan struct{}, 1), make(chan error, 1)
	go readEvents(body, events, ended)
	tick := time.NewTicker(relistInterval)
	defer tick.Stop()
	for {
		answer, err := c.list(ctx)
		if err != nil {
			return err
		}
		notify(answer)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return fmt.Errorf("follow the events of %s: %w", c.socket, err)
		case <-tick.C:
		case <-events:
			select {
			case <-ctx.Done():
			case <-time.After(engineDebounce):
			}
		}
	}
}

// readEvents signals events of containers with the label, which is among an event's attributes. The list has their
// result, even if events were lost.
func readEvents(body io.Reader, events chan<- struct{}, ended chan<- error) {
	buffer, kept := make([]byte, 4096), 0
	for {
		n, err := body.Read(buffer[kept:])
		if read := buffer[:kept+n]; bytes.Contains(read, []byte(labelService)) {
			kept = 0
			select {
			case events <- struct{}{}:
			default:
			}
		} else { // the label may have been added
			kept = copy(buffer, read[max(0, len(read)-len(labelService)+1):])
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the engine has ended them")
			}
			ended <- err
			return
		}
	}
}

func filters(of map[string][]string) string {
	text, err := json.Marshal(of)
	if err != nil { // cannot be: these are strings
		panic(err)
	}
	return string(text)
}

// get sends a request to the engine. It names no version of the API: all versions have the fields that are read here.
func (c containers) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, fmt.Errorf("ask the engine at %s: %w", c.socket, err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxError)) // whatever of it there is
		return nil, fmt.Errorf("the engine at %s answers with status %d: %s", c.socket, response.StatusCode,
			yamlfile.Quote(strings.TrimSpace(string(text))))
	}
	return response.Body, nil
}

// list returns the containers that are backends.
func (c containers) list(ctx context.Context) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	body, err := c.get(ctx, "/containers/json",
		url.Values{"all": {"1"}, "filters": {filters(map[string][]string{"label": {labelService}})}})
	if err != nil {
		return Answer{}, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxList+1))
	if err != nil {
		return Answer{}, fmt.Errorf("read the containers of %s: %w", c.socket, err)
	}
	if len(text) > maxList {
		return Answer{}, fmt.Errorf("the containers of %s take more than %d MiB", c.socket, maxList>>20)
	}
	answer, err := c.parseList(text)
	if err != nil {
		return Answer{}, fmt.Errorf("read the containers of %s: %w", c.socket, err)
	}
	return answer, nil
}

// container has the fields of a container that are read.
type container struct {
	ID     string `json:"Id"`
	Names  []string
	Labels map[string]string
	// State is a word, and Status a text for a person, which has the health check's verdict; newer
	// engines have that in Health, too.
	State, Status   string
	Health          *struct{ Status string }
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress, GlobalIPv6Address string }
	}
}

// parseList parses a list. An empty list is authoritative: the engine itself lists the containers that run.
func (c containers) parseList(text []byte) (Answer, error) {
	var all []container
	if err := json.Unmarshal(text, &all); err != nil {
		return Answer{}, fmt.Errorf("not a list of containers: %w", err)
	}
	a := Answer{Authoritative: true}
	for i := range all {
		c.addContainer(&a, &all[i])
	}
	slices.SortFunc(a.Notes, func(x, y Note) int {
		return cmp.Or(cmp.Compare(x.Service, y.Service), cmp.Compare(x.Text, y.Text))
	})
	return a, nil
}

// addContainer adds a container's backends, or the reason for which it has none.
func (c containers) addContainer(a *Answer, of *container) {
	services := slices.DeleteFunc(strings.FieldsFunc(of.Labels[labelService], func(r rune) bool {
		return r == ',' || r == ' '
	}), func(s string) bool { return s == "" })
	if len(services) == 0 || of.State != "running" && of.State != "paused" {
		return
	}
	backends, why := c.backends(of)
	for _, service := range services {
		if why != "" {
			a.Notes = append(a.Notes, Note{service, fmt.Sprintf("container %s %s: it is left out", of.containerName(),
				why)})
		}
		for _, b := range backends {
			a.Found = append(a.Found, Found{Backend: b, Service: service})
		}
	}
}

// containerName returns the container's name, or its id if it has no name.
func (of *container) containerName() string {
	if len(of.Names) > 0 && strings.Trim(of.Names[0], "/") != "" {
		return backendName(strings.Trim(of.Names[0], "/"))
	}
	return backendName(of.ID[:min(len(of.ID), 12)])
}

// backends returns the container as a backend of each family, or the reason for which it is none.
func (c containers) backends(of *container) (list []lb.Backend, why string) {
	b := lb.Backend{Name: of.containerName(), Weight: 1, NotReady: of.unhealthy()}
	var err error
	if text, is := of.Labels[labelPort]; is {
		if b.Port, err = number(text, 1); err != nil {
			return nil, fmt.Sprintf("has the label %s=%s, which is no port from 1 to 65535", labelPort,
				yamlfile.Quote(text))
		}
	}
	if text, is := of.Labels[labelWeight]; is {
		if b.Weight, err = number(text, 0); err != nil {
			return nil, fmt.Sprintf("has the label %s=%s, which is no weight from 0 to 65535", labelWeight,
				yamlfile.Quote(text))
		}
	}
	addrs, why := c.addresses(of)
	for i, addr := range addrs {
		b.Address = addr
		if i > 0 {
			b.Name = backendName(of.containerName() + "-6")
		}
		list = append(list, b)
	}
	return list, why
}

func number(text string, least uint64) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n < least {
		err = strconv.ErrRange
	}
	return uint16(n), err
}

// unhealthy returns the reason for which the container takes no new flow; "" if it does.
func (of *container) unhealthy() string {
	status := of.Status
	if of.Health != nil {
		status += "(" + of.Health.Status + ")"
	}
	switch {
	case of.State == "paused":
		return "is paused, as its engine says"
	case strings.Contains(status, "(unhealthy)"):
		return "is unhealthy, as its engine says"
	case strings.Contains(status, "(health: starting)"), strings.Contains(status, "(starting)"):
		return "is not healthy yet, as its engine says"
	}
	return ""
}

// addresses returns the addresses of the container on its network, IPv4 first, or the reason for which it has none.
func (c containers) addresses(of *container) (addrs []netip.Addr, why string) {
	networks := of.NetworkSettings.Networks
	names := slices.Sorted(maps.Keys(networks))
	at := c.network
	_, there := networks[at]
	switch {
	case at != "" && !there:
		return nil, fmt.Sprintf("is not on the network %s; it is on %s", at, cmp.Or(someNames(names), "none"))
	case at == "" && len(names) > 1:
		return nil, fmt.Sprintf("is on several networks (%s): say by `network` which one counts", someNames(names))
	case at == "" && len(names) == 0:
		return nil, "is on no network"
	case at == "":
		at = names[0]
	}
	for _, text := range []string{networks[at].IPAddress, networks[at].GlobalIPv6Address} {
		addr, err := netip.ParseAddr(text)
		if addr = addr.Unmap(); err == nil && addr.Zone() == "" && (addr.Is4() && c.four || addr.Is6() && c.six) {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Sprintf("has no address on the network %s that the service's mode reaches", backendName(at))
	}
	return addrs, ""
}

// someNames lists a few names.
func someNames(names []string) string {
	const most = 5
	list := make([]string, 0, most+1)
	for i, name := range names {
		if i == most {
			list = append(list, "…")
			break
		}
		list = append(list, backendName(name))
	}
	return strings.Join(list, ", ")
}
