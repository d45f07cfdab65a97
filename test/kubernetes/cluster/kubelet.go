// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// heartbeat is how often a kubelet renews its Lease, as the real one does, where the cluster has no shorter
// grace for nodes.
const heartbeat = 10 * time.Second

// kubelet stands in for the kubelet of a node: see the package's documentation. It knows containers whose image has a
// program, readiness probes by HTTP and TCP, preStop hooks that sleep, environment variables with values and of the
// pod's fields, restarts, and the end of a pod within its grace period. It does not know init containers,
// liveness probes and resource limits.
type kubelet struct {
	node   *Node
	client kubernetes.Interface
	log    *slog.Logger
	logs   *os.File

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*podWorker
	// taken are the addresses in use, by their number in the node's range; next is where the search begins, so
	// that an address is not used again soon.
	taken map[int]bool
	next  int
}

// startKubelet registers the node and serves its pods until kill.
func startKubelet(ctx context.Context, n *Node) (*kubelet, error) {
	config, err := n.cluster.configFrom(n.Host, n.cluster.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubelet/" + n.Name
	config.Timeout = 10 * time.Second // a node that is cut off gives up and tries again; watches have their own bound
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	k := &kubelet{node: n, client: client, pods: map[types.UID]*podWorker{}, taken: map[int]bool{}, next: firstPod}
	if k.logs, err = logFile(n.Host, "kubelet"); err != nil {
		return nil, err
	}
	k.log = slog.New(slog.NewTextHandler(k.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if err := k.register(ctx); err != nil {
		k.kill()
		return nil, err
	}
	k.running.Go(k.renewLease)
	return k, k.watchPods()
}

// kill ends the kubelet and the processes of its pods at once, and waits for that.
func (k *kubelet) kill() {
	k.cancel()
	k.running.Wait()
	k.logs.Close()
}

// register makes the Node object, as ready, and the first Lease.
func (k *kubelet) register(ctx context.Context) error {
	n, now := k.node, metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus,
		reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason,
			LastHeartbeatTime: now, LastTransitionTime: now}
	}
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("250")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name,
			corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}},
		Spec: corev1.NodeSpec{PodCIDR: n.Pods4.String(), PodCIDRs: []string{n.Pods4.String(), n.Pods6.String()}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Host.IPv4.String()},
				{Type: corev1.NodeInternalIP, Address: n.Host.IPv6.String()},
				{Type: corev1.NodeHostName, Address: n.Name}},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady")},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
				ContainerRuntimeVersion: "processes://1"}},
	}
	created, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: corev1.NamespaceNodeLease,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: created.UID}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: ptr.To[int32](40),
			RenewTime: ptr.To(metav1.NowMicro())}}
	// The API server makes the namespace soon after its start.
	var failed error
	err = poll(ctx, func() bool {
		_, failed = k.client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{})
		return !apierrors.IsNotFound(failed)
	})
	if failed != nil {
		return fmt.Errorf("make the node's Lease: %w", failed)
	}
	return err
}

func (k *kubelet) renewLease() {
	period := heartbeat
	if grace := k.node.cluster.options.NodeGrace; grace > 0 {
		period = min(period, grace/4)
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.ctx.Done():
			return
		}
		patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(k.ctx, k.node.Name,
			types.MergePatchType,
			patch, metav1.PatchOptions{})
		if err != nil && k.ctx.Err() == nil {
			k.log.Warn("renew the node's Lease", "error", err)
		}
		if err == nil {
			k.keepReady()
		}
	}
}

// keepReady says again that the node is ready where the controller manager has said that nothing was heard of it.
func (k *kubelet) keepReady() {
	node, err := k.client.CoreV1().Nodes().Get(k.ctx, k.node.Name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return
	}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue {
			continue
		}
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady",`+
			`"lastHeartbeatTime":%[1]q,"lastTransitionTime":%[1]q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if _, err := k.client.CoreV1().Nodes().PatchStatus(k.ctx, k.node.Name, patch); err != nil {
			k.log.Warn("report the node as ready", "error", err)
		}
	}
}

// watchPods follows the pods that are bound to the node.
func (k *kubelet) watchPods() error {
	factory := informers.NewSharedInformerFactoryWithOptions(k.client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = onNode(k.node.Name) }))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.take(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { k.take(object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				k.forget(pod)
			}
		},
	})
	factory.Start(k.ctx.Done())
	return err
}

// take starts a pod that is new, or tells its worker of the change.
func (k *kubelet) take(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	worker := k.pods[pod.UID]
	if worker == nil {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			return
		}
		worker = newPodWorker(k, pod)
		k.pods[pod.UID] = worker
		k.running.Go(worker.run)
	}
	if pod.DeletionTimestamp != nil {
		worker.sendEnd(end{grace: time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second})
	}
}

// forget ends a pod whose object is gone.
func (k *kubelet) forget(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if worker := k.pods[pod.UID]; worker != nil {
		worker.sendEnd(end{})
		delete(k.pods, pod.UID)
	}
}

// firstPod is the number of the first pod's address in the node's ranges; lastPod the last's.
const (
	firstPod = 2
	lastPod  = 254
)

// takeAddresses returns a free pair of addresses.
func (k *kubelet) takeAddresses() (number int, ipv4, ipv6 netip.Addr, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range lastPod - firstPod + 1 {
		number = k.next
		k.next = number + 1
		if k.next > lastPod {
			k.next = firstPod
		}
		if !k.taken[number] {
			k.taken[number] = true
			four, six := k.node.Pods4.Addr().As4(), k.node.Pods6.Addr().As16()
			four[3], six[15] = byte(number), byte(number)
			return number, netip.AddrFrom4(four), netip.AddrFrom16(six), nil
		}
	}
	return 0, ipv4, ipv6, fmt.Errorf("all %d addresses for pods of %s are in use", lastPod-firstPod+1, k.node.Name)
}

func (k *kubelet) giveBack(number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.taken, number)
}

// environment returns the variables of a container, after those that every container of this stand-in has.
func environment(pod *corev1.Pod, container *corev1.Container, ipv4 netip.Addr) []string {
	variables := []string{"PATH=" + os.Getenv("PATH"), "POD_NAME=" + pod.Name, "NAMESPACE=" + pod.Namespace,
		"NODE_NAME=" + pod.Spec.NodeName, "POD_IP=" + ipv4.String()}
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil {
			value = map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
				"metadata.uid": string(pod.UID), "spec.nodeName": pod.Spec.NodeName,
				"spec.serviceAccountName": cmp.Or(pod.Spec.ServiceAccountName, "default"),
				"status.podIP":            ipv4.String(), "status.hostIP": pod.Status.HostIP,
			}[variable.ValueFrom.FieldRef.FieldPath]
		}
		variables = append(variables, variable.Name+"="+value)
	}
	return variables
}
