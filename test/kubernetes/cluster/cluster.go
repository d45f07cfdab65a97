// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/podserver"
)

// The address ranges of a cluster, beside those of the laboratory.
const (
	ServiceCIDRs = "10.96.0.0/16,fd00:10:96::/112"
	PodCIDRs     = "10.244.0.0/16,fd00:10:244::/48"
)

// PodServerImage is the image of package podserver.
const PodServerImage = "jeoul.io/pod-server"

// startTimeout bounds the start of a cluster, which takes seconds, and minutes on cores that are busy with other work.
const startTimeout = 10 * time.Minute

// Options describe a cluster.
type Options struct {
	// Nodes are from 0, a control plane alone, to 98; Clients at least 1, by default 1.
	Nodes, Clients int
	// ProxyMode is the mode of kube-proxy, iptables or nftables; by default iptables.
	ProxyMode string
	// Images are the programs of pods by image: a path, and arguments that come before the container's own.
	// PodServerImage is always there. An image without a tag is that of all tags.
	Images map[string][]string
	// NodeGrace is how long the controller manager waits for a sign of life of a node before it calls the node not
	// ready (--node-monitor-grace-period); 0 leaves the default of Kubernetes, which is 50 s.
	NodeGrace time.Duration
	// NodePorts is the range of node ports (--service-node-port-range); empty leaves the default of Kubernetes, which
	// is 30000-32767. A Service whose externalTrafficPolicy is Local takes one for its health check.
	NodePorts string
	// Dir is the directory of the logs, which must not exist or be empty, and is kept; by default the
	// laboratory's own, which goes with it.
	Dir string
}

// Cluster is a running cluster.
type Cluster struct {
	Lab *lab.Lab
	// Control is the host of the control plane.
	Control *lab.Host
	Nodes   []*Node
	// Config and Client reach the API server as a cluster administrator, from the balancer's namespace.
	Config *rest.Config
	Client kubernetes.Interface
	// Kubeconfig is the path of a file with the same rights.
	Kubeconfig string

	options    Options
	executable string
	authority  *authority
	control    *controlPlane
	stopBinder func()
}

// New starts a cluster, and returns when its API server, its controllers and the kube-proxy of every node are ready.
// When it fails it has removed its parts.
func New(ctx context.Context, options Options) (*Cluster, error) {
	c := &Cluster{options: options}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a Kubernetes cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.executable, err = os.Executable(); err != nil {
		return err
	}
	if c.options.Clients == 0 {
		c.options.Clients = 1
	}
	if c.options.ProxyMode == "" {
		c.options.ProxyMode = "iptables"
	}
	c.Lab, err = lab.New(ctx, lab.Spec{Clients: c.options.Clients, Servers: c.options.Nodes + 1,
		KernelSettings: true, Unmetered: true, Dir: c.options.Dir})
	if err != nil {
		return err
	}
	c.Control = c.Lab.Servers[c.options.Nodes]
	if err := c.prepareAccess(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c.control = &controlPlane{cluster: c}
	if err := c.control.start(ctx); err != nil {
		return err
	}
	for n := range c.options.Nodes {
		node, err := newNode(c, n+1, c.Lab.Servers[n])
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, node)
	}
	if err := c.routePods(); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := node.start(ctx); err != nil {
			return err
		}
	}
	c.stopBinder = startBinder(c.Client)
	for _, node := range c.Nodes {
		if err := node.awaitProxy(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepareAccess makes the certificates, and the clients that use them.
func (c *Cluster) prepareAccess() error {
	var err error
	if c.authority, err = newAuthority(c.Lab.Dir); err != nil {
		return err
	}
	if c.Kubeconfig, err = c.WriteKubeconfig("admin", "system:masters"); err != nil {
		return err
	}
	if c.Config, err = c.configFrom(c.Lab.Balancer, c.Kubeconfig); err != nil {
		return err
	}
	c.Client, err = kubernetes.NewForConfig(c.Config)
	return err
}

// Server is the URL of the API server.
func (c *Cluster) Server() string {
	return "https://" + net.JoinHostPort(c.Control.IPv4.String(), apiServerPort)
}

// configFrom returns the configuration of clients that dial from a host.
func (c *Cluster) configFrom(host *lab.Host, kubeconfig string) (*rest.Config, error) {
	config, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Dial = DialFrom(host)
	config.QPS, config.Burst = 500, 1000
	return config, nil
}

// DialFrom returns a function that connects from a host's namespace.
func DialFrom(host *lab.Host) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (connection net.Conn, err error) {
		failed := host.Do(func() error {
			connection, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return connection, failed
	}
}

// Close ends everything and removes it. It may be called again, and for a cluster that did not start.
func (c *Cluster) Close() error {
	if c.stopBinder != nil {
		c.stopBinder()
	}
	var errs []error
	for _, node := range c.Nodes {
		node.end()
	}
	if c.Lab != nil {
		errs = append(errs, c.Lab.Close())
	}
	return errors.Join(errs...)
}

// program returns the command of an image.
func (c *Cluster) program(image string) ([]string, error) {
	if image == PodServerImage {
		return []string{c.executable, podserver.Role}, nil
	}
	untagged, _, _ := strings.Cut(image, ":")
	for _, name := range []string{image, untagged} {
		if command := c.options.Images[name]; len(command) > 0 {
			return command, nil
		}
	}
	return nil, fmt.Errorf("this cluster has no program for the image %s", image)
}

// logFile creates the file NAME.log in a host's directory, or goes on with it.
func logFile(host *lab.Host, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(host.Dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}
