"""The calls of facts/acl 5.1, in its order and with its arguments; each must return 0."""

import acl

NORMAL_ONLY_P2P = 5
DEVICE_TO_DEVICE = 3

codes = [acl.init("")]

codes.append(acl.rt.set_device(0))
reachable, code = acl.rt.device_can_access_peer(0, 1)
codes.append(code)
codes.append(acl.rt.device_enable_peer_access(1, 0))
on_0, code = acl.rt.malloc(1024, NORMAL_ONLY_P2P)
codes.append(code)

codes.append(acl.rt.set_device(1))
codes.append(acl.rt.device_enable_peer_access(0, 0))
on_1, code = acl.rt.malloc(1024, NORMAL_ONLY_P2P)
codes.append(code)

codes.append(acl.rt.memcpy(on_0, 1024, on_1, 1024, DEVICE_TO_DEVICE))
codes.append(acl.rt.memcpy(on_1, 1024, on_0, 1024, DEVICE_TO_DEVICE))

codes.append(acl.rt.free(on_1))
codes.append(acl.rt.free(on_0))

codes.append(acl.rt.reset_device(1))
codes.append(acl.rt.set_device(0))
codes.append(acl.rt.reset_device(0))

codes.append(acl.finalize())

if reachable != 1 or any(codes):
    raise SystemExit(f"reachable {reachable}, codes {codes}\n{acl.get_recent_err_msg()}")
print("every step returned 0")
